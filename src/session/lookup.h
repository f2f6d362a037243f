/* Finds what is kept under a session's id, by the id or its beginning. */
#pragma once

#include "core/error.h"
#include "core/strv.h"
#include "session/session.h"

/* Names in a folder that are session ids followed by `suffix` ("" for folders of sessions), sorted
 * and without the suffix. A folder that does not exist has none. */
void session_ids_in(const char *folder, const char *suffix, struct strv *ret_ids);

/* The one id that starts with `prefix`. `what` names the things for the error ("overlay"). */
int session_find(const char *folder, const char *suffix, const char *prefix, const char *what,
                 char ret_id[SESSION_ID_LENGTH + 1], struct sb_error *error);
