/* The program `sluiced`. */
#include "core/cli/daemon.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    return sl_daemon_main(argc, argv, environ);
}
