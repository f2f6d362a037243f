/* The private line between the monitor and the session's init: a SEQPACKET socket pair with fixed
 * messages. Each end learns of the other's death by end of file, whatever thread or signal ended
 * it; nothing here depends on PR_SET_PDEATHSIG, which is per thread and racy. */
#pragma once

#include <stdint.h>

enum message_kind {
  /* monitor → init */
  MESSAGE_MAPPED,       /* ids are mapped: build the base */
  MESSAGE_GO,           /* the plan is there, placeholders exist: go on; or the terminal is ready */
  MESSAGE_READY,        /* the session is registered: the command may start */
  MESSAGE_SIGNAL,       /* value: signal for the workload's first process */
  MESSAGE_SIGNAL_GROUP, /* value: signal for its whole process group */
  MESSAGE_SIGNAL_ALL,   /* value: signal for every process of the session but init */
  MESSAGE_CONTINUE,     /* after MESSAGE_STOPPED: the user brought the job back */
  MESSAGE_CONNECTED,    /* the network driver is at work */
  MESSAGE_EXEC,         /* starts one more command; carries its description and descriptors */
  MESSAGE_EXEC_SIGNAL,  /* value: signal for that command's process group */
  /* init → monitor */
  MESSAGE_TERMINAL, /* carries the master side of the session's terminal */
  MESSAGE_NETWORK,  /* carries sockets of the relay, which lie in the session's network; value:
                       the first's place, id: 1 with the last of them */
  MESSAGE_PUBLISH,  /* carries the user and network namespaces, for published ports */
  MESSAGE_DRIVER,   /* carries the user and network namespaces and sockets of the latter (routes,
                       netfilter), for the network driver */
  MESSAGE_GATE,     /* carries the gate's device or listener, the mount namespace, and the pid
                       namespace and the whole of the gate (FUSE) or the root (seccomp notify) */
  MESSAGE_CONNECTS, /* carries the listener that calls of connect(2) wait for: the connector's.
                       Comes with the next */
  MESSAGE_STARTED,  /* the exec succeeded; value: pid inside; if idle, carries /proc and /tmp. Not
                       sent for a command that has ended at once */
  MESSAGE_STOPPED,  /* the workload was stopped by job control */
  MESSAGE_EXITED,   /* value: wait status */
  MESSAGE_EXEC_TERMINAL, /* carries the master side of that command's terminal */
  MESSAGE_EXEC_STARTED,  /* value: pid inside, or a negative errno */
  MESSAGE_EXEC_EXITED,   /* value: wait status */
};

struct message {
  uint32_t kind;
  int32_t value;
  uint32_t id; /* MESSAGE_EXEC*: which command; chosen by the monitor */
};

/* What MESSAGE_EXEC's first descriptor (a memory file) holds: this, then the strings, each with its
 * NUL: the working folder, the arguments, the environment, the places to look for the program. With
 * a terminal no other descriptors come; without one, stdin, stdout and stderr follow. */
struct exec_header {
  uint32_t argument_count, environment_count, executable_count;
  uint32_t terminal;
};
#define EXEC_PAYLOAD_LIMIT (8u << 20)
