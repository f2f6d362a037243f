/* One generator per shell; each appends a whole script made from the tables. */
#pragma once

#include "cli/cli.h"
#include "core/text.h"

void completion_bash(struct text *text);
void completion_zsh(struct text *text);
void completion_fish(struct text *text);

/* Appends one word quoted for a shell (the three agree on what we need). */
void completion_append_word(struct text *text, const char *word);

/* The visible verbs, separated by spaces. */
void completion_append_verbs(struct text *text);
