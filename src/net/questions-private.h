/* Between the files of the resolver: questions.c reads, decides and answers, questions-ask.c waits
 * for the monitor, questions-real.c has real addresses opened for a driver. */
#pragma once

#include "net/dns.h"
#include "net/flow.h"

#define QUESTION_SIZE 1024
#define ASKED_LIMIT   1024 /* at the same time */

/* Where an answer goes. */
struct asker {
  struct relay *relay;
  struct flow *flow; /* by TCP, or NULL */
  int fd;            /* by UDP */
  struct sockaddr_storage from;
  socklen_t from_length;
  struct address to; /* whom it asked: the answer comes from there */
};

/* A question that waits for an answer from outside, for the monitor's word, or for addresses to be
 * opened. */
struct asked {
  struct asked *next; /* of those that wait for the monitor, or for a driver's minder */
  uint32_t id;
  struct address addresses[RESOLVE_LIMIT]; /* real ones, while they are opened */
  size_t address_count;
  uint32_t ttl, classes;
  bool sent;         /* the minder knows */
  bool approved;     /* by whoever was asked, not by a rule */
  bool asks;         /* somebody may say yes; else only whose question it is has to be found out */
  uint64_t until_ms; /* who asks by UDP and has not asked again by then has gone */
  struct asker asker;
  uint8_t message[QUESTION_SIZE];
  size_t length;
};

/* ---- questions.c ---- */

struct asked *asked_new(const struct asker *asker, const uint8_t *message, size_t length);
void asked_free(struct asked *asked);

/* Looks the name up outside and answers; takes the question. */
void asked_look_outside(struct asked *asked, const char *name);

void send_reply(struct asker *asker, const struct dns_question *question,
                const struct dns_reply *reply);
void reply_synthetic(struct asker *asker, const struct dns_question *question);
void reply_refused(struct asker *asker, const struct dns_question *question, const char *reason,
                   bool asked); /* asked: the monitor itself said no */
void note_missing(struct relay *relay, const char *name);

/* ---- questions-ask.c ---- */

/* No rule names it, and nobody is there who could allow it: it does not exist. */
void reply_unasked(struct asker *asker, const struct dns_question *question, const uint8_t *bytes,
                   size_t length);

/* No rule names it: the answer waits for a decision. For a driver; else it is the connection that
 * waits. */
void reply_when_asked(struct asker *asker, const struct dns_question *question,
                      const uint8_t *bytes, size_t length);

void unlink_waiting(struct asked *asked);

/* ---- questions-real.c ---- */

/* The name leads to these: answers when they are open. Takes the question. */
void answer_real(struct asked *asked, const struct dns_question *question,
                 const struct resolved *resolved);
void unlink_opening(const struct asked *asked);
