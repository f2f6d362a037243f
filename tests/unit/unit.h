/* What every cmocka program needs, in the order cmocka wants it, and TAP output for the runner. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT_MAIN(tests)                                                                           \
  int main(void) {                                                                                 \
    cmocka_set_message_output(CM_OUTPUT_TAP);                                                      \
    return cmocka_run_group_tests(tests, NULL, NULL);                                              \
  }
