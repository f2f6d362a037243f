/* libsandbox: the C interface to sandbox. Small for now; what is here is stable.
 *
 * Conventions. Names start with sb_. Strings returned as `const char *` belong to the library or to
 * the object asked, and live as long as that. A function that can fail returns a negative number
 * and describes the failure in the sb_error object that is its last parameter; the library never
 * prints and never exits. Link with `pkg-config --cflags --libs sandbox`. */
#ifndef SANDBOX_H
#define SANDBOX_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library in use, such as "0.1.0". */
const char *sb_version(void);

/* A failure: why, and what to do about it. One object can be used for any number of calls; each
 * failure replaces the one before. Not to be shared between threads without a lock. */
typedef struct sb_error sb_error;

/* A new object that holds no failure. Never NULL. */
sb_error *sb_error_new(void);

/* Does nothing for NULL. */
void sb_error_free(sb_error *error);

/* The kind of failure, as a word that does not change between versions: "usage", "policy",
 * "not-found", "unsupported", "denied", "conflict" or "system"; "none" without a failure. */
const char *sb_error_code(const sb_error *error);

/* One sentence for people, without a newline, safe to print on a terminal; "" without a failure. */
const char *sb_error_message(const sb_error *error);

/* What to do about it, or NULL if there is no advice. */
const char *sb_error_hint(const sb_error *error);

#ifdef __cplusplus
}
#endif

#endif
