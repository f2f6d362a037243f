/* What to write for a host name that is not ASCII. A policy holds names as DNS has them (`xn--…`):
 * two names that look alike to a reader are different there. So this is for error messages, and
 * nothing is ever matched with it. Pure. */
#pragma once

/* A host rule with every label in ASCII. NULL if it is ASCII already, or no name, or has characters
 * for which this needs larger tables than we have: then better no advice than a wrong one. */
char *idn_suggest(const char *rule);
