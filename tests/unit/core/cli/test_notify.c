/* sd_notify by hand: both kinds of address. */
#include "core/cli/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void receives(const char *variable, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, strlen(variable));
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(variable))),
                     0);
    setenv("NOTIFY_SOCKET", variable, 1);
    sl_notify("READY=1\nSTATUS=port %d", 5);
    char text[100] = "";
    assert_int_equal(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), 21);
    assert_string_equal(text, "READY=1\nSTATUS=port 5");
    close(fd);
}

static void notify__addresses(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_notify.XXXXXX", path[64], abstract[64], variable[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    receives(path, path);
    unlink(path);
    rmdir(folder);
    snprintf(variable, sizeof variable, "@%s", path + 1);
    memcpy(abstract, variable, sizeof abstract);
    abstract[0] = '\0';
    receives(variable, abstract);
}

static void notify__nobody_listens__quiet(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    sl_notify("READY=1");
    setenv("NOTIFY_SOCKET", "", 1);
    sl_notify("READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    sl_notify("READY=1");
    setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    sl_notify("READY=1");
    char big[600];
    memset(big, 'x', sizeof big - 1);
    big[0] = '/';
    big[sizeof big - 1] = '\0';
    setenv("NOTIFY_SOCKET", big, 1);
    sl_notify("READY=1");
    sl_notify("%s", big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notify__addresses),
        cmocka_unit_test(notify__nobody_listens__quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
