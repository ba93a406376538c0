/* Numbered texts, for the other sources of the library. */
#ifndef TRACEVIEW_TEXTS_H
#define TRACEVIEW_TEXTS_H

#include <stdint.h>

/* The distinct texts so far, one after another, each followed by a NUL.
 *
 * Text i begins at starts[i] and ends one byte before starts[i + 1]. `slots` is a hash table, a
 * power of two at least twice `most_texts`: the hash in the upper half, the number in the lower.
 */
struct text_table {
    uint8_t *content;
    int64_t most_bytes;
    int64_t *starts;
    int64_t most_texts; /* `starts` has one entry more */
    int64_t texts;
    uint64_t *slots;
    int64_t slot_count;
};

/* The number of a text, which is added if new. Returns NULL, or the reason of a failure. */
const char *traceview_number_text(struct text_table *table, const uint8_t *text, int64_t bytes,
                                  int32_t *number);

#endif
