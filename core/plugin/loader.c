/* The loader: from a plugin's name to its one exported symbol. It does not unload: commands run
 * once, and libraries below plugins (libibverbs) do not like to be unloaded. */
#include "core/plugin/loader.h"

#include "core/base/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDERS_MAX 3

struct folders {
    char paths[FOLDERS_MAX][PATH_MAX];
    size_t count;
};

static void add_beside_program(struct folders *folders, const char *relative)
{
    char *path = folders->paths[folders->count];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return;
    size_t room = PATH_MAX - (size_t)(slash - path);
    if (snprintf(slash, room, "/../%s/sluice", relative) < (int)room)
        folders->count++;
}

static void find_folders(struct folders *folders)
{
    folders->count = 0;
    const char *given = secure_getenv("SLUICE_PLUGIN_PATH");
    if (given && *given) {
        snprintf(folders->paths[folders->count++], PATH_MAX, "%s", given);
        return;
    }
    add_beside_program(folders, "lib");
    if (SLUICE_LIBDIR[0] != '/' && strcmp(SLUICE_LIBDIR, "lib") != 0)
        add_beside_program(folders, SLUICE_LIBDIR);
    snprintf(folders->paths[folders->count++], PATH_MAX, "%s/sluice", SLUICE_FULL_LIBDIR);
}

/* The path of the plugin's file. */
static int find_file(const char *name, char path[PATH_MAX], struct sl_err *err)
{
    struct folders folders;
    find_folders(&folders);
    char looked[400] = "";
    for (size_t i = 0; i < folders.count; i++) {
        int n = snprintf(path, PATH_MAX, "%s/sluice-%s.so", folders.paths[i], name);
        if (n < PATH_MAX && access(path, F_OK) == 0)
            return 0;
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s\"%s\"", i ? ", " : "", folders.paths[i]);
    }
    sl_err_set(err, SL_ERR_NOT_FOUND, "plugin \"sluice-%s.so\" is not in %s", name, looked);
    sl_err_hint(err, "install it, or set SLUICE_PLUGIN_PATH to its folder");
    return SL_ERR_NOT_FOUND;
}

static int load(const char *name, const char *symbol, const void **ret_symbol, struct sl_err *err)
{
    char path[PATH_MAX];
    int rc = find_file(name, path, err);
    if (rc)
        return rc;
    int sys = sl_fault("plugin.dlopen");
    void *handle = sys ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "could not load plugin \"%s\": %s", path,
                          sys ? strerror(sys) : dlerror());
    const void *found = dlsym(handle, symbol);
    if (!found) {
        dlclose(handle);
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "\"%s\" is no plugin: it lacks symbol %s", path,
                          symbol);
    }
    *ret_symbol = found;
    return 0;
}

static int check_abi(const char *name, uint32_t has, uint32_t wants, struct sl_err *err)
{
    if (has == wants)
        return 0;
    sl_err_set(err, SL_ERR_VERSION,
               "plugin \"sluice-%s.so\" was built for interface %u, this is %u", name, has, wants);
    sl_err_hint(err, "install the plugin of the same Sluice version");
    return SL_ERR_VERSION;
}

/* The name becomes part of a path. */
static bool is_engine_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return length && length < 32 && !name[length];
}

int sl_plugin_engine(const char *name, const struct sl_engine **ret_engine, struct sl_err *err)
{
    if (!is_engine_name(name))
        return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not the name of an engine", name);
    const void *symbol = NULL;
    int rc = load(name, "sluice_engine", &symbol, err);
    if (rc)
        return rc;
    const struct sl_engine *engine = symbol;
    rc = check_abi(name, engine->abi, SL_ENGINE_ABI, err);
    if (rc)
        return rc;
    if (!engine->name || !engine->commands || !engine->options)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "plugin \"sluice-%s.so\" is incomplete", name);
    *ret_engine = engine;
    return 0;
}

int sl_plugin_transport(const struct sl_transport_plugin **ret_plugin, struct sl_err *err)
{
    const void *symbol = NULL;
    int rc = load("verbs", "sluice_transport", &symbol, err);
    if (rc) {
        if (rc == SL_ERR_UNSUPPORTED)
            sl_err_hint(err, "RDMA needs rdma-core: librdmacm, libibverbs and ibverbs-providers");
        return rc;
    }
    const struct sl_transport_plugin *plugin = symbol;
    rc = check_abi("verbs", plugin->abi, SL_TRANSPORT_ABI, err);
    if (rc)
        return rc;
    if (!plugin->rail || !plugin->listen || !plugin->describe || !plugin->memlock)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "plugin \"sluice-verbs.so\" is incomplete");
    *ret_plugin = plugin;
    return 0;
}
