/* What archive_load stores and repo_check expects: content that follows from the name. */
#ifndef TESTS_SUPPORT_ARCHIVE_CONTENT_H
#define TESTS_SUPPORT_ARCHIVE_CONTENT_H

#include "core/wire/message.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The n-th object: four to a folder, so that new folders are made all the time. */
static inline void archive_name(uint64_t n, char name[SL_NAME_MAX])
{
    snprintf(name, SL_NAME_MAX, "wal/7000000000000000001/00000001/%016llX/%016llX%08llX",
             (unsigned long long)(n / 4), (unsigned long long)(n / 4), (unsigned long long)(n % 4));
}

static inline void archive_fill(const char *name, uint8_t *bytes, size_t count)
{
    uint64_t state = 0xcbf29ce484222325ull;
    for (const char *c = name; *c; c++)
        state = (state ^ (uint8_t)*c) * 0x100000001b3ull;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        bytes[i] = (uint8_t)(state >> 56);
    }
}

#endif
