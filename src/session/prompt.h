/* The prompt on the terminal of `sandbox run`: one supervisor of the decisions. While it is shown,
 * the workload's output waits and its input goes nowhere; nothing typed before it was visible
 * answers it. Lives in the monitor's loop and never blocks. */
#pragma once

#include <poll.h>
#include <stdint.h>

#include "session/decisions.h"
#include "session/terminal.h"

struct prompt;

/* NULL if there is no terminal of which we alone have the keyboard and the screen. */
struct prompt *prompt_new(struct terminal *terminal, struct decisions *decisions,
                          const char *session_id);

/* Puts the terminal back. NULL is fine for all of these. */
void prompt_free(struct prompt *prompt);

/* What to wait for, and after poll what to do. */
void prompt_watch(const struct prompt *prompt, struct pollfd *watched);
void prompt_step(struct prompt *prompt, const struct pollfd *watched);

/* When to look again without an event; 0: not at all. */
uint64_t prompt_next_step(const struct prompt *prompt);

/* The terminal has another size, or has come back: draw again. */
void prompt_redraw(struct prompt *prompt);

/* We are about to stop: the question gives the terminal back and is asked anew afterwards. */
void prompt_lend(struct prompt *prompt);

/* Columns and lines of a terminal; 0 if it does not say. */
unsigned prompt_width(int terminal);
unsigned prompt_height(int terminal);
