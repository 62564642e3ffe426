/* docs/exit-codes.md says what core/base/err.h does. */
#include "core/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void exit_codes__document__complete(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *file = fopen(TEST_DOCS "/exit-codes.md", "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (int code = -1; code > -SL_INDEX_COUNT_; code--) {
        char row[200];
        snprintf(row, sizeof row, "\n| %d | %s | %s | %s |\n", sl_code_exit(code),
                 sl_code_name(code), sl_code_text(code), sl_code_retryable(code) ? "yes" : "no");
        if (!strstr(text, row))
            fail_msg("docs/exit-codes.md lacks the row%s", row);
        assert_in_range(sl_code_exit(code), 1, 125);
        for (int other = -1; other > code; other--)
            assert_int_not_equal(sl_code_exit(other), sl_code_exit(code));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exit_codes__document__complete)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
