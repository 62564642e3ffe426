/* Rows of the options that `sluice` and `sluiced` share: name, type, choices and bounds stand once.
 * What each program says about them, and a default that differs, is given where the row is used.
 * Inside of core/cli only. */
#ifndef SL_CLI_OPTION_ROWS_H
#define SL_CLI_OPTION_ROWS_H

#include "core/base/options.h"

#define ROW_CONFIG(...)                                                                            \
    {                                                                                              \
        .name = "config", .type = SL_OPTION_STRING, .value_name = "FILE",                          \
        .flags = SL_OPTION_CLI_ONLY, .help = "configuration file", __VA_ARGS__                     \
    }
#define ROW_OUTPUT(...)                                                                            \
    {                                                                                              \
        .name = "output", .type = SL_OPTION_CHOICE, .choices = "text|json",                        \
        .default_text = "text", __VA_ARGS__                                                        \
    }
#define ROW_LOG_LEVEL(...)                                                                         \
    {                                                                                              \
        .name = "log-level", .type = SL_OPTION_CHOICE, .choices = "error|warn|info|detail|debug",  \
        .help = "what is logged to standard error", __VA_ARGS__                                    \
    }
#define ROW_REPO_PATH(...)                                                                         \
    {                                                                                              \
        .name = "repo-path", .type = SL_OPTION_STRING, .value_name = "DIR", __VA_ARGS__            \
    }
#define ROW_TRANSPORT(...)                                                                         \
    {                                                                                              \
        .name = "transport", .type = SL_OPTION_CHOICE, .choices = "auto|rdma|tcp",                 \
        .default_text = "auto", __VA_ARGS__                                                        \
    }
#define ROW_WIRE_ENCRYPTION(...)                                                                   \
    {                                                                                              \
        .name = "wire-encryption", .type = SL_OPTION_CHOICE, .choices = "auto|on|off",             \
        .default_text = "auto", __VA_ARGS__                                                        \
    }
#define ROW_TLS_CERT                                                                               \
    {                                                                                              \
        .name = "tls-cert", .type = SL_OPTION_STRING, .value_name = "FILE",                        \
        .help = "this host's certificate (PEM)"                                                    \
    }
#define ROW_TLS_KEY                                                                                \
    {                                                                                              \
        .name = "tls-key", .type = SL_OPTION_STRING, .value_name = "FILE",                         \
        .help = "its private key (PEM), readable by the owner only"                                \
    }
#define ROW_TLS_CA(...)                                                                            \
    {                                                                                              \
        .name = "tls-ca", .type = SL_OPTION_STRING, .value_name = "FILE", __VA_ARGS__              \
    }
#define ROW_TRAFFIC_CLASS(...)                                                                     \
    {                                                                                              \
        .name = "traffic-class", .type = SL_OPTION_INT, .value_name = "N", .min = 0, .max = 255,   \
        __VA_ARGS__                                                                                \
    }
#define ROW_LANES(...)                                                                             \
    {                                                                                              \
        .name = "lanes", .type = SL_OPTION_INT, .value_name = "N", .min = 1, .max = 64,            \
        __VA_ARGS__                                                                                \
    }
#define ROW_QUEUE_DEPTH                                                                            \
    {                                                                                              \
        .name = "queue-depth", .type = SL_OPTION_INT, .value_name = "N", .default_text = "16",     \
        .min = 1, .max = 1024, .help = "blocks in flight on a lane"                                \
    }

#endif
