/* The relay confines itself: it reads what a hostile workload sends. */
#pragma once

/* Called when everything is open that is needed: from now on only sockets, pipes and the files that
 * say how to resolve names. Returns 0 or a negative errno. */
int relay_confine(void);
