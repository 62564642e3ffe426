/* The client with the real target, when nothing goes wrong: embedded, and over TCP on 127.0.0.1. */
#include "core/base/fault.h"
#include "tests/unit/core/client/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* --- the plain way --------------------------------------------------------------------------- */

static const size_t sizes[] = {0,       1,       4095,           4096,        MiB - 1, MiB,
                               MiB + 1, 2 * MiB, 3 * MiB + 4097, 9 * MiB + 5, 20 * MiB};

static void round_trips(const struct sl_client_config *config)
{
    struct sl_client *client = open_must(config);
    struct sl_err err;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int holes = 0; holes < 2; holes++) {
            char name[64];
            struct sl_stored stored;
            snprintf(name, sizeof name, "wal/%u-%d", i, holes);
            uint8_t *bytes = content_new(i, sizes[i], holes);
            int rc = upload(client, name, bytes, sizes[i], &stored, &err);
            if (rc)
                print_error("%s: %s\n", name, err.msg);
            assert_int_equal(rc, 0);
            assert_int_equal(stored.outcome, SL_STORED_CREATED);
            assert_int_equal(stored.length, sizes[i]);
            rc = fetch_and_compare(client, name, bytes, sizes[i], &err);
            if (rc)
                print_error("%s: %s\n", name, err.msg);
            assert_int_equal(rc, 0);
            free(bytes);
        }
    sl_client_close(client);
}

static void embedded__every_size__comes_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    round_trips(&world.config);
    struct sl_client *client = world_connect(&world);
    struct sl_client_info info;
    sl_client_info(client, &info);
    assert_int_equal(info.transport, SL_TRANSPORT_LOCAL);
    assert_false(info.sealed);
    assert_int_equal(info.slots, 64);
    assert_string_equal(info.store, "posix");
    assert_string_equal(info.lane.transport, "local");
    world_close(&world);
}

static void tcp__every_size_sealed_or_not__comes_back(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        struct world world;
        world_open(&world, &(struct world_options){.listening = true});
        world.config.seal = sealed ? SL_SEAL_AUTO : SL_SEAL_OFF;
        world.config.slot_bytes_total = 4 * MiB;
        round_trips(&world.config);
        struct sl_client *client = world_connect(&world);
        struct sl_client_info info;
        sl_client_info(client, &info);
        assert_int_equal(info.transport, SL_TRANSPORT_TCP);
        assert_int_equal(info.sealed, sealed);
        assert_int_equal(info.slots, 4);
        assert_in_range(info.clock_skew_ms + 1000, 0, 2000);
        assert_non_null(strstr(info.transport_why, "auto: no RDMA here"));
        assert_string_equal(info.lane.transport, "tcp");
        world_close(&world);
    }
}

/* A third text, a third noise, a third zeros. */
static uint8_t *mixed_new(size_t count)
{
    uint8_t *bytes = content_new(7, count, true);
    for (size_t i = 0; i < count; i++)
        if (i / MiB % 3 == 0 && i % 61)
            bytes[i] = (uint8_t)('a' + i % 97 % 23);
    return bytes;
}

static void packed_round_trip(struct sl_client_config *config, enum sl_codec codec)
{
    struct sl_err err;
    struct sl_stored stored, again;
    const size_t count = 9 * MiB - 77;
    uint8_t *bytes = mixed_new(count);
    char name[64];
    config->codec = codec;
    config->codec_level = 1;
    struct sl_client *client = open_must(config);
    snprintf(name, sizeof name, "packed/%s-%d", sl_codec_name(codec), (int)config->seal);
    assert_int_equal(upload(client, name, bytes, count, &stored, &err), 0);
    assert_int_equal(stored.length, count);
    if (codec == SL_CODEC_PLAIN)
        assert_int_equal(stored.stored_bytes, 6 * MiB - 77);
    else /* the noise (seven bits of eight), and less than half of the text */
        assert_in_range(stored.stored_bytes, 5 * MiB / 2, 9 * MiB / 2);
    assert_int_equal(fetch_and_compare(client, name, bytes, count, &err), 0);
    sl_client_close(client);
    config->codec = codec == SL_CODEC_LZ4 ? SL_CODEC_ZSTD : SL_CODEC_LZ4;
    client = open_must(config); /* whatever it is packed with, it is the same */
    assert_int_equal(upload(client, name, bytes, count, &again, &err), 0);
    assert_int_equal(again.outcome, SL_STORED_IDENTICAL);
    assert_true(sl_id_equal(&again.digest, &stored.digest));
    sl_client_close(client);
    free(bytes);
}

static void packed__every_codec_sealed_or_not__comes_back_smaller(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++)
        for (enum sl_codec codec = SL_CODEC_PLAIN; codec <= SL_CODEC_LZ4; codec++) {
            struct world world;
            world_open(&world, &(struct world_options){.listening = true});
            world.config.seal = sealed ? SL_SEAL_ON : SL_SEAL_OFF;
            packed_round_trip(&world.config, codec);
            world_close(&world);
        }
}

static void put__same_and_other_content__identical_or_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_stored stored;
    struct sl_object_info info;
    assert_int_equal(sl_client_put(client, "a/b", "hello", 5, SOON, &stored, &err), 0);
    assert_int_equal(stored.outcome, SL_STORED_CREATED);
    struct sl_id digest = stored.digest;
    assert_int_equal(sl_client_put(client, "a/b", "hello", 5, SOON, &stored, &err), 0);
    assert_int_equal(stored.outcome, SL_STORED_IDENTICAL);
    assert_int_equal(sl_client_put(client, "a/b", "hallo", 5, SOON, &stored, &err), SL_ERR_EXISTS);
    assert_non_null(strstr(err.msg, "a/b"));
    assert_int_equal(sl_client_stat(client, "a/b", SOON, &info, &err), 1);
    assert_int_equal(info.length, 5);
    assert_true(sl_id_equal(&info.digest, &digest));
    assert_non_null(strstr(info.creator, "local:"));
    assert_int_equal(sl_client_stat(client, "a/c", SOON, &info, &err), 0);
    assert_int_equal(fetch_and_compare(client, "a/b", (const uint8_t *)"hello", 5, &err), 0);
    char *bytes;
    size_t count;
    assert_int_equal(sl_client_fetch(client, "a/b", 4, SOON, &bytes, &count, &err), SL_ERR_LIMIT);
    assert_int_equal(sl_client_fetch(client, "a/c", 4, SOON, &bytes, &count, &err),
                     SL_ERR_NOT_FOUND);
    assert_int_equal(sl_client_put(client, "../x", "hello", 5, SOON, &stored, &err), SL_ERR_USAGE);
    struct sl_download *download;
    digest.bytes[3] ^= 1;
    assert_int_equal(sl_download_open(client, "a/b", &digest, SOON, &download, NULL, &err),
                     SL_ERR_CHECKSUM);
    assert_non_null(strstr(err.msg, "a/b"));
    uint64_t free_bytes, total_bytes;
    assert_int_equal(sl_client_space(client, SOON, &free_bytes, &total_bytes, &err), 0);
    assert_true(free_bytes > 0 && free_bytes <= total_bytes);
    world_close(&world);
}

static void put_must(struct sl_client *client, const char *name)
{
    struct sl_err err;
    assert_int_equal(sl_client_put(client, name, "x", 1, SOON, NULL, &err), 0);
}

static void remove__with_the_role__object_and_empty_folders_go(void **state)
{
    (void)state;
    struct world world;
    struct sl_err err;
    struct sl_object_info info;
    uint64_t removed;
    world_open(&world, &(struct world_options){.may_remove = true});
    struct sl_client *client = world_connect(&world);
    put_must(client, "wal/1/a");
    put_must(client, "wal/1/b");
    put_must(client, "stanza.json");
    assert_int_equal(sl_client_remove(client, "wal/1/a", SOON, &err), 0);
    assert_int_equal(sl_client_stat(client, "wal/1/a", SOON, &info, &err), 0);
    assert_int_equal(sl_client_stat(client, "wal/1/b", SOON, &info, &err), 1);
    assert_int_equal(sl_client_remove(client, "wal/1/a", SOON, &err), 0); /* again */
    assert_int_equal(sl_client_remove(client, "wal/1/b", SOON, &err), 0);
    char path[256];
    world_path(&world, "wal/1", path, sizeof path);
    assert_int_not_equal(access(path, F_OK), 0);
    put_must(client, "wal/1/a"); /* the folder is made anew */
    assert_int_equal(sl_client_remove(client, "stanza.json", SOON, &err), SL_ERR_DENIED);
    assert_int_equal(sl_client_remove(client, "wal", SOON, &err), SL_ERR_DENIED);
    assert_int_equal(sl_client_remove(client, "wal/1", SOON, &err), SL_ERR_NOT_EMPTY);
    assert_int_equal(sl_client_remove(client, "../x/y", SOON, &err), SL_ERR_USAGE);
    put_must(client, "backup/x/expired");
    assert_int_equal(sl_client_sweep(client, 0, SOON, &removed, &err), 0);
    assert_int_equal(removed, 0);
    world_close(&world);
}

/* A database host that was taken over must not be able to delete. */
static void remove__without_the_role__own_leases_only(void **state)
{
    (void)state;
    struct world world;
    struct sl_err err;
    uint64_t removed;
    world_open(&world, &(struct world_options){0});
    struct sl_client *client = world_connect(&world);
    put_must(client, "backup/x/manifest");
    put_must(client, "backup/x/lease-1");
    assert_int_equal(sl_client_remove(client, "backup/x/manifest", SOON, &err), SL_ERR_DENIED);
    assert_non_null(strstr(err.hint, "expire-clients"));
    assert_int_equal(sl_client_put(client, "backup/x/expired", "x", 1, SOON, NULL, &err),
                     SL_ERR_DENIED);
    assert_int_equal(sl_client_sweep(client, 0, SOON, &removed, &err), SL_ERR_DENIED);
    assert_int_equal(sl_client_remove(client, "backup/x/lease-1", SOON, &err), 0);
    assert_int_equal(sl_client_stat(client, "backup/x/lease-1", SOON, NULL, &err), 0);
    assert_int_equal(sl_client_stat(client, "backup/x/manifest", SOON, NULL, &err), 1);
    assert_int_equal(sl_client_remove(client, "backup/x/lease-2", SOON, &err), 0);
    assert_int_equal(
        sl_repo_put(world.repo, "main/backup/x/lease-3", "x", 1, "somebody", NULL, &err), 0);
    assert_int_equal(sl_client_remove(client, "backup/x/lease-3", SOON, &err), SL_ERR_DENIED);
    assert_non_null(strstr(err.msg, "somebody"));
    world_close(&world);
}

static void upload_abort__at_any_point__nothing_stays(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    world.config.slot_bytes_total = 4 * MiB;
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    uint8_t *bytes = content_new(1, 6 * MiB, false);
    for (size_t count = 0; count < 6 * MiB; count += 700000) {
        struct sl_upload *up;
        assert_int_equal(sl_upload_begin(client, "gone", 0, SOON, &up, &err), 0);
        assert_int_equal(sl_upload_write(up, bytes, count, &err), 0);
        sl_upload_abort(up);
    }
    assert_int_equal(sl_client_stat(client, "gone", SOON, NULL, &err), 0);
    struct sl_stored stored;
    assert_int_equal(upload(client, "gone", bytes, 6 * MiB, &stored, &err), 0);
    sl_upload_abort(NULL);
    free(bytes);
    world_close(&world);
}

static void download_range__parts_and_jumps__right_blocks(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.listening = true});
    world.config.slot_bytes_total = 8 * MiB;
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_stored stored;
    size_t count = 30 * MiB + 77;
    uint8_t *bytes = content_new(5, count, true);
    assert_int_equal(upload(client, "pack", bytes, count, &stored, &err), 0);
    struct sl_download *download;
    struct sl_object_info info;
    assert_int_equal(sl_download_open(client, "pack", &stored.digest, SOON, &download, &info, &err),
                     0);
    assert_int_equal(info.length, count);
    static const uint32_t ranges[][3] = {/* first, count, how many are read */
                                         {28, 3, 3}, {0, 31, 5}, {10, 20, 0},
                                         {7, 1, 1},  {31, 0, 0}, {0, 31, 31}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        assert_int_equal(sl_download_range(download, ranges[i][0], ranges[i][1], &err), 0);
        for (uint32_t k = 0; k < ranges[i][2]; k++) {
            uint32_t block;
            const uint8_t *got;
            size_t got_count;
            int rc = sl_download_next(download, &block, &got, &got_count, SOON, &err);
            if (rc < 0)
                print_error("%s\n", err.msg);
            assert_int_equal(rc, 1);
            assert_int_equal(block, ranges[i][0] + k);
            assert_int_equal(got_count, sl_block_length(count, block));
            assert_memory_equal(got, bytes + (size_t)block * MiB, got_count);
        }
        if (ranges[i][1] == ranges[i][2]) {
            uint32_t block;
            const uint8_t *got;
            size_t got_count;
            assert_int_equal(sl_download_next(download, &block, &got, &got_count, SOON, &err), 0);
        }
    }
    assert_int_equal(sl_download_range(download, 30, 2, &err), SL_ERR_USAGE);
    assert_int_equal(sl_download_range(download, 32, 0, &err), SL_ERR_USAGE);
    sl_download_close(download);
    free(bytes);
    world_close(&world);
}

/* --- many at once ---------------------------------------------------------------------------- */

static void embedded__hundred_objects_by_eight_threads__all_whole(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    world.config.slot_bytes_total = 4 * MiB; /* fewer slots than threads */
    struct sl_client *client = world_connect(&world);
    assert_int_equal(run_jobs(client, 8, 13, 2 * MiB, NULL, NULL), 0);
    world_close(&world);
}

static void tcp__hundred_objects_by_eight_threads__all_whole(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.listening = true});
    world.config.slot_bytes_total = 6 * MiB;
    struct sl_client *client = world_connect(&world);
    assert_int_equal(run_jobs(client, 8, 13, 2 * MiB, NULL, NULL), 0);
    world_close(&world);
}

/* --- questions ------------------------------------------------------------------------------- */

static void list__folders_and_pages__bytewise_and_whole(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    /* more than a page: made beside the target, empty files are enough for a list */
    char path[160], command[512];
    world_path(&world, "many", path, sizeof path);
    snprintf(command, sizeof command,
             "mkdir -p %s && cd %s && seq -f %%08g-a-name-that-is-long-enough-to-fill-pages 1 2500 "
             "| xargs touch",
             path, path);
    MUST(system(command) == 0);
    struct listing all = {.ordered = true};
    assert_int_equal(sl_client_list(client, "many", NULL, note_entry, &all, SOON, &err), 0);
    assert_int_equal(all.count, 2500);
    assert_true(all.ordered);
    struct listing some = {.ordered = true};
    assert_int_equal(sl_client_list(client, "many", "00002000", note_entry, &some, SOON, &err), 0);
    assert_int_equal(some.count, 501);
    struct listing stopped = {.stop_at = 3};
    sl_err_set(&err, SL_ERR_CANCELLED, "the visitor's own words");
    assert_int_equal(sl_client_list(client, "many", NULL, note_entry, &stopped, SOON, &err),
                     SL_ERR_CANCELLED);
    assert_string_equal(err.msg, "the visitor's own words");
    assert_int_equal(stopped.count, 3);
    struct listing none = {0};
    assert_int_equal(sl_client_list(client, "nowhere", NULL, note_entry, &none, SOON, &err), 0);
    assert_int_equal(none.count, 0);
    struct listing top = {.ordered = true};
    assert_int_equal(sl_client_list(client, "", NULL, note_entry, &top, SOON, &err), 0);
    assert_int_equal(top.count, 1);
    assert_string_equal(top.last, "many");
    world_close(&world);
}

static void flip(const struct world *world, const char *name, long offset)
{
    char path[160];
    world_path(world, name, path, sizeof path);
    FILE *file = fopen(path, "r+");
    MUST(file);
    fseek(file, offset, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ 4, file);
    fclose(file);
}

static void verify_and_fetch__a_flipped_bit__found_and_named(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){0});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_stored stored;
    for (unsigned i = 0; i < 5; i++) {
        char name[16];
        uint8_t *bytes = content_new(i, 3 * MiB, false);
        snprintf(name, sizeof name, "w/%u", i);
        assert_int_equal(upload(client, name, bytes, 3 * MiB, &stored, &err), 0);
        free(bytes);
    }
    struct damages damages = {0};
    struct sl_verify_progress total;
    assert_int_equal(sl_client_verify(client, "", note_damage, note_step, &damages, &total, &err),
                     0);
    assert_int_equal(damages.count, 0);
    assert_int_equal(total.objects, 5);
    assert_in_range(damages.steps, 1, 1000);
    flip(&world, "w/3", 2 * MiB + 17);
    assert_int_equal(sl_client_verify(client, "w", note_damage, NULL, &damages, &total, &err), 0);
    assert_int_equal(damages.count, 1);
    assert_int_equal(total.damaged, 1);
    assert_string_equal(damages.name, "w/3");
    char *bytes;
    size_t count;
    int rc = sl_client_fetch(client, "w/3", 8 * MiB, SOON, &bytes, &count, &err);
    assert_int_equal(rc, SL_ERR_CHECKSUM);
    assert_non_null(strstr(err.msg, "w/3"));
    assert_non_null(strstr(err.msg, "block 2"));
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedded__every_size__comes_back),
        cmocka_unit_test(tcp__every_size_sealed_or_not__comes_back),
        cmocka_unit_test(remove__with_the_role__object_and_empty_folders_go),
        cmocka_unit_test(remove__without_the_role__own_leases_only),
        cmocka_unit_test(packed__every_codec_sealed_or_not__comes_back_smaller),
        cmocka_unit_test(put__same_and_other_content__identical_or_refused),
        cmocka_unit_test(upload_abort__at_any_point__nothing_stays),
        cmocka_unit_test(download_range__parts_and_jumps__right_blocks),
        cmocka_unit_test(embedded__hundred_objects_by_eight_threads__all_whole),
        cmocka_unit_test(tcp__hundred_objects_by_eight_threads__all_whole),
        cmocka_unit_test(list__folders_and_pages__bytewise_and_whole),
        cmocka_unit_test(verify_and_fetch__a_flipped_bit__found_and_named),
    };
    return cmocka_run_group_tests(tests, no_sigpipe, NULL);
}
