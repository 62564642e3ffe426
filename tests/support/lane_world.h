/* What the tests of lanes share: a transport under test (the fixture), a world with a client's and
 * a target's end in it, ends that are driven by poll(2) alone and remember their events, memory
 * with patterns.
 */
#ifndef SL_TESTS_LANE_WORLD_H
#define SL_TESTS_LANE_WORLD_H

#include "core/transport/lane.h"

#define LANE_ID_REFUSED 0xffff /* fixtures refuse a lane of this number */
#define LANE_DEPTH      16     /* asked for; a device may give less: see lane->depth */
#define LANE_WAIT_MS    20000  /* the most any wait of a test takes */

/* The target's side of a fixture; what only the fixture needs follows it in its own struct. */
struct lane_target {
    char port[8];
    struct sl_domain *domain; /* that accepted lanes are made in; NULL until the first, if the rail
                                 is met only then */
};

/* A transport under test. Either `pair` (both ends in one process, no peer process cases) or the
 * rest. Everything may fail, and is failed by the torture case: no asserts inside. */
struct lane_fixture {
    const char *name;
    bool light;      /* slow machine (emulated lab): fewer repetitions */
    bool soft_iwarp; /* Linux' siw: it does not check the right to read, and sends wrong bytes in a
                        small READ response or WRITE that crosses a page (siw_try_1seg); slots
                        begin on pages */
    bool vague;      /* a refused range shows as any failure (iWARP's terminate), not as DENIED */
    /* in one process */
    int (*rail_new)(struct sl_rail **ret_rail, struct sl_err *err);
    int (*pair)(struct sl_domain *client, struct sl_domain *target, uint16_t lane_id,
                uint16_t depth, struct sl_lane **ret_passive, struct sl_lane **ret_active,
                struct sl_err *err);
    /* over a network */
    const struct sl_rail_ops *rail; /* the client's */
    const char *host;               /* where the client finds the target */
    int (*target_open)(const struct lane_fixture *fixture, uint16_t depth,
                       struct lane_target **ret_target, struct sl_err *err);
    /* Waits for one lane. SL_ERR_TIMEOUT when none came, another code for one that failed or was
     * refused (LANE_ID_REFUSED must be). */
    int (*target_accept)(struct lane_target *target, sl_deadline deadline,
                         struct sl_lane **ret_lane, struct sl_err *err);
    void (*target_close)(struct lane_target *target); /* frees its domain and rail too; NULL ok */
    const struct sl_transport_plugin *plugin;         /* for lane_plugin_… below */
};

/* target_open, _accept and _close for a transport with a listener (struct sl_transport_plugin). */
int lane_plugin_target_open(const struct lane_fixture *fixture, uint16_t depth,
                            struct lane_target **ret_target, struct sl_err *err);
int lane_plugin_target_accept(struct lane_target *target, sl_deadline deadline,
                              struct sl_lane **ret_lane, struct sl_err *err);
void lane_plugin_target_close(struct lane_target *target);

/* An end and what it was told. */
struct lane_end {
    struct sl_lane *lane; /* NULL: not there (any more) */
    struct sl_lane_event *events;
    size_t count, room;
    size_t max; /* events asked for in a process() call */
    bool closed;
    int close_code;
    bool broken; /* an event after SL_LANE_CLOSED, or more than `max`: checked at the end */
    void (*on_event)(struct lane_end *end, const struct sl_lane_event *event);
    void *arg;
};

#define LANE_ENDS_MAX 8

struct lane_world {
    const struct lane_fixture *fixture;
    struct lane_target *target; /* network fixtures */
    struct sl_rail *client_rail, *target_rail;
    struct sl_domain *client, *target_domain;
    uint16_t next_id;
    struct lane_end passive, active;      /* the first pair */
    struct lane_end *ends[LANE_ENDS_MAX]; /* that lane_pump() drives */
    size_t end_count;
};

/* Rails and domains, without a lane; then a pair in it (a NULL for one of world->passive,
 * world->active). Everything is undone by lane_world_close(), also after a failure; memory of the
 * world is freed before. */
int lane_world_open(struct lane_world *world, const struct lane_fixture *fixture, uint16_t depth,
                    struct sl_err *err);
int lane_pair(struct lane_world *world, uint16_t depth, struct lane_end *passive,
              struct lane_end *active, struct sl_err *err);
void lane_world_close(struct lane_world *world);
/* The client's half of it, blocking; lane_cancel_fd ends it. */
extern int lane_cancel_fd;
int lane_connect(struct sl_rail *rail, struct sl_domain *domain, const struct lane_fixture *fixture,
                 const char *port, uint16_t id, uint16_t depth, sl_deadline deadline,
                 struct sl_lane **ret_lane, struct sl_err *err);
/* Frees the lane of an end, and forgets its events. */
void lane_end_free(struct lane_world *world, struct lane_end *end);
void lane_world_add(struct lane_world *world, struct lane_end *end, struct sl_lane *lane);

/* Poll the ends' fds as they want, at most `ms`; process() only those that are ready. */
void lane_pump(struct lane_end *const *ends, size_t count, int ms);
/* process() of one end, until it has no more. */
void lane_process(struct lane_end *end);
size_t lane_count(const struct lane_end *end, enum sl_lane_event_kind kind);
/* How often work with this context was answered; its last code in `*ret_code`. */
size_t lane_answers(const struct lane_end *end, enum sl_lane_event_kind kind, uint64_t context,
                    int *ret_code);

/* Pumps the world until `condition` holds; fails the test when that takes too long. */
#define LANE_WAIT(world, condition)                                                                \
    do {                                                                                           \
        sl_deadline until_ = sl_deadline_in_ms(LANE_WAIT_MS);                                      \
        while (!(condition)) {                                                                     \
            if (sl_deadline_passed(until_))                                                        \
                fail_msg("waited too long for: %s", #condition);                                   \
            lane_pump((world)->ends, (world)->end_count, 20);                                      \
        }                                                                                          \
    } while (0)

/* Registered memory. */
struct lane_memory {
    uint8_t *start;
    size_t bytes;
    struct sl_region *region;
};

int lane_memory_new(struct lane_memory *memory, struct sl_domain *domain, size_t bytes,
                    enum sl_access access, struct sl_err *err);
void lane_memory_free(struct lane_memory *memory);
static inline struct sl_local lane_local(const struct lane_memory *memory, size_t offset)
{
    return (struct sl_local){memory->region, memory->start + offset};
}

/* Pseudo-random bytes of a seed; and whether they are still there. */
void lane_fill(uint8_t *start, size_t bytes, uint64_t seed);
bool lane_holds(const uint8_t *start, size_t bytes, uint64_t seed);
bool lane_all(const uint8_t *start, size_t bytes, uint8_t value); /* all bytes are `value` */
uint64_t lane_random(uint64_t *state);

/* `times`, or fewer where the machine or the build is slow. */
unsigned lane_repeat(const struct lane_fixture *fixture, unsigned times);

size_t lane_open_fds(void);

#endif
