/* Help texts, made from the tables. Each prints and returns an exit code. */
#pragma once

#include "cli/cli.h"

int help_command(void); /* sandbox --help, on stdout */
int help_no_verb(void); /* `sandbox` alone: the verbs on stderr, and 125, as nothing was run */
int help_version(void);
int help_for_verb(const struct verb *verb);
