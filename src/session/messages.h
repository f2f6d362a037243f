/* Private to src/session: the monitor's end of the line to the session's init. */
#pragma once

struct monitor;

/* Reads one message, if there is one, and does what it asks for. Anything that is not of the
 * protocol ends the session. */
void messages_read(struct monitor *monitor);
