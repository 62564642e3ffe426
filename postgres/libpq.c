/* Loading libpq: a table of its functions. */
#include "postgres/libpq.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

int sl_libpq_load(const struct sl_libpq **ret_libpq, struct sl_err *err)
{
    static struct sl_libpq table;
    static bool loaded;
    if (loaded) {
        *ret_libpq = &table;
        return 0;
    }
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        sl_err_set(err, SL_ERR_UNSUPPORTED, "could not load libpq: %s", dlerror());
        sl_err_hint(err, "install PostgreSQL's client library (Debian: libpq5)");
        return SL_ERR_UNSUPPORTED;
    }
    /* POSIX lets a void * from dlsym() be a function; ISO C has no cast for it */
#define X(name)                                                                                    \
    {                                                                                              \
        void *symbol = dlsym(library, #name);                                                      \
        if (!symbol)                                                                               \
            return sl_err_set(err, SL_ERR_UNSUPPORTED, "libpq has no %s", #name);                  \
        memcpy(&table.name, &symbol, sizeof symbol);                                               \
    }
    SL_LIBPQ_FUNCTIONS(X)
#undef X
    loaded = true;
    *ret_libpq = &table;
    return 0;
}
