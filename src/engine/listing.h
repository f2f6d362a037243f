/* The names in a folder without the folder: a file system of its own that holds nothing but them,
 * attached nowhere. A descriptor of the folder itself would be a way to walk the host. */
#pragma once

/* Names and kinds of what the folder (O_PATH) holds now, and texts of links. Gives a descriptor of
 * the copy to read from, or a negative errno; -E2BIG if it holds too many. No allocation. */
int listing_copy(int folder);
