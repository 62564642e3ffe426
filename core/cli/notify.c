/* sd_notify(3) by hand: one datagram, no libsystemd. */
#include "core/cli/daemon.h"

#include "core/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void sl_notify(const char *fmt, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    char message[512];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof message)
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (*path == '@')
        address.sun_path[0] = '\0'; /* an abstract address: unix(7) */
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, message, (size_t)length, MSG_NOSIGNAL,
                         (const struct sockaddr *)&address, bytes) < 0)
        sl_log(SL_LOG_WARN, "sluiced", "could not notify systemd: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}
