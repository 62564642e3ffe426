/* Memory: thin wrappers over malloc and mmap with one fault point. */
#include "core/base/alloc.h"

#include "core/base/fault.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *sl_alloc(size_t bytes)
{
    return sl_fault("alloc") ? NULL : malloc(bytes ? bytes : 1);
}

void *sl_calloc(size_t count, size_t bytes)
{
    return sl_fault("alloc") ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *sl_realloc(void *old, size_t bytes)
{
    return sl_fault("alloc") ? NULL : realloc(old, bytes ? bytes : 1);
}

char *sl_strdup(const char *text)
{
    return sl_strndup(text, SIZE_MAX);
}

char *sl_strndup(const char *text, size_t max)
{
    size_t length = strnlen(text, max);
    char *copy = sl_alloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *sl_asprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0)
        return NULL;
    char *text = sl_alloc((size_t)length + 1);
    if (!text)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, (size_t)length + 1, fmt, args);
    va_end(args);
    return text;
}

void sl_free(void *memory)
{
    free(memory);
}

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

void *sl_pages_alloc(size_t bytes)
{
    if (!bytes || sl_fault("alloc"))
        return NULL;
    void *memory =
        mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* fewer page faults, fewer entries to pin; a hint, and without huge pages all is as before */
    if (bytes >= HUGE_PAGE_BYTES)
        (void)madvise(memory, whole_pages(bytes), MADV_HUGEPAGE);
    return memory;
}

void sl_pages_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, whole_pages(bytes));
}

void sl_cleanup_free(void *pointer_to_pointer)
{
    void **memory = pointer_to_pointer;
    free(*memory);
}
