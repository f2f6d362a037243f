/* What is asked: one object and kind of access, and everybody who waits for the answer. Nothing
 * here decides. */
#pragma once

#include <jansson.h>

#include "policy/policy.h"
#include "session/approvals.h"
#include "session/decisions.h"

#define QUESTION_ID_SIZE 33 /* 128 random bits as hexadecimal digits, and a NUL */

struct waiter {
  uint64_t ticket;
  answer_callback *callback;
  void *context;
};

struct question {
  char id[QUESTION_ID_SIZE];
  struct access_request request; /* its strings are ours */
  char *exe, *cwd;               /* of the asking process, resolved by the kernel; "?" if unknown */
  char *proposal;                /* a folder that could be allowed as a whole, or NULL */
  const char *secret;            /* why it is a secret, or NULL */
  char *own_secret;              /* the same where it did not come from the table */
  enum grant_scope narrowest;    /* shorter approvals would give nothing: they are refused */
  enum grant_scope widest;       /* longer approvals are refused */
  bool names;                    /* allowed for longer than once: its names, and nothing else */
  bool early;                    /* nobody has come yet who could be asked */
  uint64_t asked_ns, deadline_ns;
  struct waiter *waiters;
  size_t waiter_count;
};

/* Copies the request, looks at the asking process and draws an id. */
struct question *question_new(const struct access_request *request, const struct policy *policy,
                              const struct policy_context *context);
void question_free(struct question *question);

bool question_is_about(const struct question *question, const struct access_request *request);
void question_add_waiter(struct question *question, uint64_t ticket, answer_callback *callback,
                         void *context);

/* Returns true if the ticket was one of its waiters. */
bool question_drop_waiter(struct question *question, uint64_t ticket);

/* The program and working folder of a process, as the kernel knows them. New strings. */
void process_describe(pid_t pid, char **ret_exe, char **ret_cwd);

/* "read", "list", "look at", "run", "write", "connect to". */
const char *want_verb(enum want want);

/* The same for programs: "read", "list", "stat", "execute", "write", "connect". */
const char *want_name(enum want want);
const char *scope_name(enum grant_scope scope);

/* "/path" or "host:port", escaped. New string. */
char *request_show(const struct access_request *request);

/* Sets access, and path (with path_b64), device and inode or host and port. */
void request_to_json(const struct access_request *request, json_t *object);

/* The message that tells a supervisor: event.fs_request or event.net_request. */
json_t *question_to_json(const struct question *question, uint64_t now_ns);

/* The other way round, for clients: NULL if the message is not such an event. */
struct question *question_from_json(const json_t *message);
