/* The archive module's pusher on a repository in a folder: what is ahead, in which order it is
 * stored, and what becomes of it when the file before it fails or the file itself changes. */
#include "postgres/archive_module/pusher.h"

#include "core/cli/settings.h"
#include "postgres/repository.h"
#include "tests/unit/postgres/cmocka_all.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_ID 42ull
#define BYTES     (1u << 20)

extern const struct sl_engine sluice_engine;

struct world {
    char folder[64], config[128];
    struct sl_pg_pusher *pusher;
};

static char *path_of(const struct world *w, const char *below)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", w->folder, below);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

static const char *name_of(unsigned number)
{
    static char name[32];
    snprintf(name, sizeof name, "0000000100000000%08X", number);
    return name;
}

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* A segment of a size with a true header, and `fill` after it; .ready. */
static void segment_of(const struct world *w, unsigned number, int fill, size_t size)
{
    char below[80];
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, fill, size);
    put(bytes, 0xD110, 2);
    put(bytes + 2, 0x0002, 2);
    put(bytes + 4, 1, 4);
    put(bytes + 8, (uint64_t)number * size, 8);
    put(bytes + 16, 0, 8);
    put(bytes + 24, SYSTEM_ID, 8);
    put(bytes + 32, size, 4);
    put(bytes + 36, 8192, 4);
    snprintf(below, sizeof below, "pg_wal/%s", name_of(number));
    write_file(path_of(w, below), bytes, size);
    snprintf(below, sizeof below, "pg_wal/archive_status/%s.ready", name_of(number));
    write_file(path_of(w, below), "", 0);
    free(bytes);
}

static void segment(const struct world *w, unsigned number, int fill)
{
    segment_of(w, number, fill, BYTES);
}

static bool is_stored(const struct world *w, unsigned number)
{
    char below[160];
    struct stat st;
    snprintf(below, sizeof below, "repo/main/wal/42/00000001/0000000100000000/%s", name_of(number));
    return !stat(path_of(w, below), &st);
}

static bool becomes_stored(const struct world *w, unsigned number)
{
    for (int i = 0; i < 1000 && !is_stored(w, number); i++)
        usleep(20000);
    return is_stored(w, number);
}

/* As the server does: asks, waits, marks as done. */
static int archive(const struct world *w, unsigned number, struct sl_err *err)
{
    char below[80], done[256];
    snprintf(below, sizeof below, "pg_wal/%s", name_of(number));
    int rc = sl_pg_pusher_ask(w->pusher, name_of(number), path_of(w, below), err);
    struct pollfd fd = {.fd = sl_pg_pusher_fd(w->pusher), .events = POLLIN};
    while (!rc) {
        poll(&fd, 1, 100);
        rc = sl_pg_pusher_answer(w->pusher, err);
    }
    snprintf(below, sizeof below, "pg_wal/archive_status/%s.done", name_of(number));
    strcpy(done, path_of(w, below));
    snprintf(below, sizeof below, "pg_wal/archive_status/%s.ready", name_of(number));
    if (rc == 1)
        rename(path_of(w, below), done);
    return rc;
}

static void make_stanza(const struct world *w)
{
    const struct sl_settings_source source = {
        .engine = &sluice_engine, .command = "archive-push", .config_path = w->config};
    const struct sl_connect_options create = {.create_repository = true, .short_lived = true};
    const struct sl_lives_words words = {
        .engine = SL_PG_ENGINE, .product = "PostgreSQL ", .identity = "", .upgrade = ""};
    const struct sl_stanza_life life = {.id = "42", .version = "15"};
    struct sl_settings *settings;
    struct sl_connection *connection;
    struct sl_err err = {0};
    bool added;
    if (sl_settings_read(&source, &settings, &err) ||
        sl_connection_open(sl_settings_invocation(settings), &create, sl_deadline_in_ms(60000),
                           &connection, &err) ||
        sl_lives_create(sl_connection_client(connection), &words, "main", &life,
                        sl_deadline_in_ms(60000), &added, &err))
        fail_msg("%s", err.msg);
    sl_connection_close(connection);
    sl_settings_free(settings);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char text[512];
    strcpy(w->folder, "/tmp/sluice-pusher-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    mkdir(path_of(w, "pg_wal"), 0700);
    mkdir(path_of(w, "pg_wal/archive_status"), 0700);
    strcpy(w->config, path_of(w, "conf"));
    snprintf(text, sizeof text, "[global]\nrepo-path = %s/repo\n[main]\npg-path = /nowhere\n",
             w->folder);
    write_file(w->config, text, strlen(text));
    make_stanza(w);
    assert_int_equal(sl_pg_pusher_new(w->config, NULL, &w->pusher, NULL), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[128];
    bool ended = sl_pg_pusher_free(w->pusher, 60000);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    int rc = system(command);
    free(w);
    return ended ? rc : -1;
}

static void ask__one_of_many__the_next_are_stored_too(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    for (unsigned i = 1; i <= 5; i++)
        segment(w, i, (int)i);
    assert_int_equal(archive(w, 1, &err), 1);
    for (unsigned i = 2; i <= 5; i++)
        assert_true(becomes_stored(w, i));
    for (unsigned i = 2; i <= 5; i++)
        assert_int_equal(archive(w, i, &err), 1);
    assert_int_equal(archive(w, 3, &err), 1); /* again, forgotten: found identical */
}

static void ask__one_of_those_ahead_is_missing__nothing_after_it(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    segment(w, 1, 1);
    segment(w, 2, 2);
    for (unsigned i = 4; i <= 8; i++)
        segment(w, i, (int)i);
    write_file(path_of(w, "pg_wal/archive_status/000000010000000000000003.ready"), "", 0);
    assert_int_equal(archive(w, 1, &err), 1);
    assert_int_equal(archive(w, 2, &err), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(archive(w, 3, &err), SL_ERR_OPEN);
        assert_non_null(strstr(err.msg, "000000010000000000000003"));
    }
    usleep(300000);
    for (unsigned i = 4; i <= 8; i++)
        assert_false(is_stored(w, i));
    segment(w, 3, 3);
    for (unsigned i = 3; i <= 8; i++)
        assert_int_equal(archive(w, i, &err), 1);
}

/* The later one is long, and still on its way when the refusal has been answered. */
static void ask__refused_while_the_next_is_sent__that_is_not_stored(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    segment(w, 2, 99);
    assert_int_equal(archive(w, 2, &err), 1);
    segment(w, 1, 1);
    segment(w, 2, 2);
    segment_of(w, 3, 3, 128u << 20);
    assert_int_equal(archive(w, 1, &err), 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(archive(w, 2, &err), SL_ERR_EXISTS);
        usleep(300000);
    }
    assert_false(is_stored(w, 3));
    segment(w, 2, 99);
    assert_int_equal(archive(w, 2, &err), 1);
    assert_int_equal(archive(w, 3, &err), 1);
}

static void ask__changed_since_it_was_stored_ahead__refused(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    segment(w, 1, 1);
    segment(w, 2, 2);
    assert_int_equal(archive(w, 1, &err), 1);
    assert_true(becomes_stored(w, 2));
    segment(w, 2, 99);
    assert_int_equal(archive(w, 2, &err), SL_ERR_EXISTS);
    assert_non_null(strstr(err.hint, "they differ from page 0"));
}

static void reload__what_does_not_work__fails_until_the_next(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    segment(w, 1, 1);
    assert_int_equal(archive(w, 1, &err), 1);
    assert_int_equal(sl_pg_pusher_reload(w->pusher, path_of(w, "none"), NULL, &err), 0);
    segment(w, 2, 2);
    assert_int_equal(archive(w, 2, &err), SL_ERR_OPEN);
    assert_int_equal(sl_pg_pusher_reload(w->pusher, w->config, "other", &err), 0);
    assert_int_equal(archive(w, 2, &err), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(err.hint, "stanza-create"));
    assert_int_equal(sl_pg_pusher_reload(w->pusher, w->config, "main", &err), 0);
    assert_int_equal(archive(w, 2, &err), 1);
}

static void ask__what_is_none__refused(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    assert_int_equal(sl_pg_pusher_ask(w->pusher, "RECOVERYXLOG", "pg_wal/RECOVERYXLOG", &err),
                     SL_ERR_USAGE);
    assert_int_equal(sl_pg_pusher_ask(w->pusher, name_of(1), "pg_wal/x", &err), SL_ERR_USAGE);
    assert_true(sl_pg_pusher_answer(w->pusher, &err) < 0);
}

/* Whatever is under way when the server ends the module. */
static void free__in_the_middle__ends(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    char below[80];
    for (unsigned i = 1; i <= 20; i++)
        segment(w, i, (int)i);
    snprintf(below, sizeof below, "pg_wal/%s", name_of(1));
    assert_true(sl_pg_pusher_ask(w->pusher, name_of(1), path_of(w, below), &err) >= 0);
    usleep(20000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ask__one_of_many__the_next_are_stored_too),
        TEST(ask__one_of_those_ahead_is_missing__nothing_after_it),
        TEST(ask__refused_while_the_next_is_sent__that_is_not_stored),
        TEST(ask__changed_since_it_was_stored_ahead__refused),
        TEST(reload__what_does_not_work__fails_until_the_next),
        TEST(ask__what_is_none__refused),
        TEST(free__in_the_middle__ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
