/* The program `sluice`. */
#include "core/cli/cli.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    return sl_cli_main(argc, argv, environ);
}
