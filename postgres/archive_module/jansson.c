/* What the jansson inside of the module takes for stdin (CMakeLists.txt); it never reads it. */
#include <stdio.h>

extern FILE *sl_pg_no_stdin;
FILE *sl_pg_no_stdin;
