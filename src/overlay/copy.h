/* Copying the contents of a file, holes included. */
#pragma once

/* From the beginning of one open file into an empty one. 0 or a negative errno. */
int copy_contents(int source, int target);
