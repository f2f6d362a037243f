/* What a workload wants and policy may leave open: the words that the gate, the relay, decisions,
 * prompts and the audit log share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum access_subject {
  SUBJECT_FILE,
  SUBJECT_NETWORK,
};

enum want {
  WANT_READ, /* open for reading, readlink, xattr */
  WANT_LIST, /* opendir */
  WANT_STAT, /* stat, access */
  WANT_EXECUTE,
  WANT_WRITE,   /* create, truncate, rename, unlink …: asked only with ask_writes */
  WANT_CONNECT, /* a UNIX socket by path, or a network name and port */
};

struct access_request {
  enum access_subject subject;
  enum want want;
  const char *path;       /* file: canonical path of the object on the host, any bytes */
  uint64_t device, inode; /* file: the pinned object */
  bool folder, socket;
  bool names;       /* list: the names in the folder are all that the call gets */
  bool lasting;     /* file: to allow it once would give nothing */
  bool movable;     /* file: the workload may give its name to another: only this one is meant */
  const char *host; /* network: name (lower case, no trailing dot) or literal address */
  uint16_t port;
  pid_t pid; /* the asking process as the monitor sees it; 0: not known */
};

enum answer {
  ANSWER_PENDING,
  ANSWER_ALLOW,
  ANSWER_DENY,
  ANSWER_HIDE, /* denied by policy, never asked */
};

enum grant_scope {
  SCOPE_ONCE, /* this one access (and those joined to the same question) */
  SCOPE_SESSION,
  SCOPE_PROJECT,
  SCOPE_USER,
  SCOPE_ORG,
};

struct answered {
  enum answer answer;
  enum grant_scope scope;
  const char *tree; /* allowed with everything below it: the object itself or an ancestor */
  bool writable;
  bool names; /* only the names in the folder, for longer than once: there is no tree */
};
