/* libsandbox: the C interface to sandbox. docs/LIBRARY.md explains it, examples/ shows it in use.
 *
 * Conventions. Names start with sb_. Handles are opaque; who made one frees it, and NULL can always
 * be freed. `const char *` that is returned belongs to the handle asked and lives as long as that;
 * `char *` is the caller's, to be released with free(). A function that can fail returns a negative
 * number or NULL and describes the failure in its last parameter, which may be NULL for who does
 * not care. Outputs are untouched then.
 *
 * The library never prints, never exits, and leaves the caller's process as it is: signals, working
 * folder, umask, descriptors, environment, and children that it did not start. It can be used from
 * several threads; one handle must not be used by two at once.
 *
 * Link with `pkg-config --cflags --libs sandbox`. */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library in use, such as "0.1.0". */
const char *sb_version(void);

/* ---- failures ---- */

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

/* ---- policy ---- */

typedef struct sb_policy sb_policy;

/* The policy that holds in a folder (NULL: the current one): built-in tables and all stores. */
sb_policy *sb_policy_load(const char *folder, sb_error *error);
void sb_policy_free(sb_policy *policy);

/* One more policy on top, as of `sandbox run --policy`: a file, or YAML or JSON text. */
int sb_policy_add_file(sb_policy *policy, const char *file, sb_error *error);
int sb_policy_add_text(sb_policy *policy, const char *text, sb_error *error);

enum sb_access { SB_READ, SB_WRITE };
enum sb_decision { SB_ALLOW, SB_ASK, SB_DENY, SB_HIDE };

/* What the policy says about a path; relative ones are below the policy's folder. */
enum sb_decision sb_policy_decide(const sb_policy *policy, const char *path, enum sb_access access);

/* The same with the rule that decides, as JSON: path, resolved, verdict, rule, overridden. */
char *sb_policy_explain(const sb_policy *policy, const char *path, enum sb_access access);

/* The merged policy as JSON. */
char *sb_policy_to_json(const sb_policy *policy);

/* Another program's settings as a policy in YAML: of Claude Code, sandbox-runtime, Dive, mycode or
 * neuraphage ("claude", "srt", "dive", "mycode", "neuraphage"; NULL: whichever recognises them).
 * *ret_lost is what a policy cannot express, one line each; "" if nothing is lost. */
char *sb_policy_import(const char *format, const char *file, const char *text, char **ret_lost,
                       sb_error *error);

/* ---- deciding about commands ---- */

typedef struct sb_verdict sb_verdict;

/* Would this command be sandboxed, and should somebody be asked first? `argv` ends with NULL. */
sb_verdict *sb_decide(const sb_policy *policy, const char *const argv[], sb_error *error);
/* The same for a string for the shell. */
sb_verdict *sb_decide_script(const sb_policy *policy, const char *script, sb_error *error);
void sb_verdict_free(sb_verdict *verdict);

int sb_verdict_sandboxed(const sb_verdict *verdict);
int sb_verdict_excluded(const sb_verdict *verdict);
int sb_verdict_refused(const sb_verdict *verdict);
int sb_verdict_needs_approval(const sb_verdict *verdict);
/* One sentence each; NULL after the last. */
const char *sb_verdict_reason(const sb_verdict *verdict, size_t index);

/* ---- how to run ---- */

typedef struct sb_options sb_options;

/* Without any setting: the policy of the current folder, no input. Never NULL. */
sb_options *sb_options_new(void);
void sb_options_free(sb_options *options);

/* One option of `sandbox run` by its long name without dashes: ("memory", "512M"), ("rw",
 * "/opt/x"),
 * ("static", NULL). Those that the library uses itself are refused. */
int sb_options_add(sb_options *options, const char *name, const char *value, sb_error *error);

/* Policy text (YAML or JSON) over all stores. */
void sb_options_set_policy(sb_options *options, const char *text);

/* Where the command starts, and whose project it is about; NULL: the current folder. */
void sb_options_set_folder(sb_options *options, const char *folder);

/* What the command reads from stdin. */
void sb_options_set_input(sb_options *options, const void *data, size_t length);

/* The environment of the `sandbox` command, from which the policy chooses what passes:
 * "NAME=value", ends with NULL. NULL: the caller's. */
void sb_options_set_environment(sb_options *options, const char *const environment[]);

/* A run ends early when this descriptor becomes readable or is closed at its other end; -1: none.
 */
void sb_options_set_cancel_fd(sb_options *options, int fd);

/* Called in the thread of sb_run for each event, one line of JSON (docs/RESULTS.md, --status-fd).
 */
typedef void sb_event_function(void *context, const char *event);
void sb_options_on_event(sb_options *options, sb_event_function *function, void *context);

/* The `sandbox` command to use instead of the installed one. */
void sb_options_set_command(sb_options *options, const char *path);

/* ---- running ---- */

typedef struct sb_result sb_result;

/* Runs a command in a new sandbox and waits for its end. A command that fails is a result, not a
 * failure of the call. */
sb_result *sb_run(const sb_options *options, const char *const argv[], sb_error *error);
/* The same for a string for the shell. */
sb_result *sb_run_script(const sb_options *options, const char *script, sb_error *error);
void sb_result_free(sb_result *result);

int sb_result_success(const sb_result *result);
int sb_result_exit_code(const sb_result *result);
/* NUL-terminated; *ret_length, if not NULL, is its length without that. */
const char *sb_result_stdout(const sb_result *result, size_t *ret_length);
const char *sb_result_stderr(const sb_result *result, size_t *ret_length);
/* Negative where it is not known. Seconds and bytes. */
double sb_result_wall_time(const sb_result *result);
double sb_result_cpu_time(const sb_result *result);
long long sb_result_memory_peak(const sb_result *result);
/* Name of the limit that was reached, or NULL. */
const char *sb_result_limit_hit(const sb_result *result);
/* "native" and so on; "none" if it ran without a sandbox. */
const char *sb_result_backend(const sb_result *result);
const char *sb_result_session_id(const sb_result *result);
/* What `sandbox` said about it for people, or "". */
const char *sb_result_warnings(const sb_result *result);
/* All of it, as in docs/RESULTS.md. */
const char *sb_result_json(const sb_result *result);

/* The command line that would run it in another sandbox, as JSON: argv, env, fds, files. */
char *sb_wrap_command(const sb_options *options, const char *backend, const char *const argv[],
                      sb_error *error);

/* ---- sessions ---- */

typedef struct sb_session sb_session;

/* Starts a session without a command. It ends with sb_session_free, or with the caller's process.
 */
sb_session *sb_session_start(const sb_options *options, sb_error *error);
/* A session that somebody else started, by its id. sb_session_free leaves it running. */
sb_session *sb_session_open(const char *id, sb_error *error);
void sb_session_free(sb_session *session);
const char *sb_session_id(const sb_session *session);

/* Runs a command in it and waits for its end; of the options the folder (absolute), the input and
 * the environment (added to the session's) count. NULL: none. */
sb_result *sb_session_exec(sb_session *session, const char *const argv[], const sb_options *options,
                           sb_error *error);
/* Processor time, memory and so on, as JSON: the answer to cmd.stats in docs/PROTOCOL.md. */
char *sb_session_stats(sb_session *session, sb_error *error);
/* Ends it; with `now` without grace. Returns when nothing of it is left. */
int sb_session_kill(sb_session *session, int now, sb_error *error);
/* Waits until it has ended: 1, or 0 if it has not after that many milliseconds (-1: for ever). */
int sb_session_wait(sb_session *session, int milliseconds, sb_error *error);

/* ---- events and questions of a session ---- */

typedef struct sb_events sb_events;

/* Listens to a session: what it decides, and the questions of dynamic mode. Unless `observe`, the
 * session waits for answers. */
sb_events *sb_events_open(sb_session *session, int observe, sb_error *error);
void sb_events_free(sb_events *events);
/* Readable when something has arrived; for poll. */
int sb_events_fd(const sb_events *events);
/* The next message, one line of JSON (docs/PROTOCOL.md); waits for it. NULL at the end. */
char *sb_events_next(sb_events *events, sb_error *error);
/* Sends a command, such as {"cmd":"cmd.approve","id":"..."}. Its answer is among the messages. */
int sb_events_send(sb_events *events, const char *command, sb_error *error);

#ifdef __cplusplus
}
#endif

#endif
