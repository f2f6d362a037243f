/* The private line between the monitor and the session's init: a SEQPACKET socket pair with fixed
 * messages. Each end learns of the other's death by end of file, whatever thread or signal ended
 * it; nothing here depends on PR_SET_PDEATHSIG, which is per thread and racy. */
#pragma once

#include <stdint.h>

enum message_kind {
  /* monitor → init */
  MESSAGE_IDENTITY_READY, /* ids are mapped */
  MESSAGE_GO,             /* placeholders exist; build the view and start */
  MESSAGE_SIGNAL,         /* value: signal for the workload's first process */
  MESSAGE_SIGNAL_GROUP,   /* value: signal for its whole process group */
  MESSAGE_CONTINUE,       /* after MESSAGE_STOPPED: the user brought the job back */
  /* init → monitor */
  MESSAGE_TERMINAL, /* carries the master side of the session's terminal */
  MESSAGE_STARTED,  /* the exec succeeded; value: pid inside */
  MESSAGE_STOPPED,  /* the workload was stopped by job control */
  MESSAGE_EXITED,   /* value: wait status */
};

struct message {
  uint32_t kind;
  int32_t value;
};
