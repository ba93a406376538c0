/* C code of tables/packed_texts.py and facts/ranges/origins.py: texts numbered in order
 * of appearance, picked and searched, digits in names zeroed, and numbers read.
 *
 * The texts are any bytes and are compared as such. The caller allocates all buffers and states
 * their sizes, which are never exceeded. Knows nothing of Python, and may run in several threads.
 */
#define _GNU_SOURCE /* memmem of glibc */
#include "texts.h"

#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* Far beyond what happens by chance in a table that is at most half full. */
enum { MOST_PROBES = 512, AHEAD = 32 };
static const uint64_t FREE = UINT64_MAX, MIX = 0x9E3779B97F4A7C15u;

static const char NO_ROOM[] = "there is no room for the texts";
static const char COLLISIONS[] = "texts that are made to collide";

static uint64_t word_at(const uint8_t *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return word;
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * MIX;
    return hash ^ hash >> 32;
}

static uint32_t hash_of(const uint8_t *text, int64_t bytes)
{
    const int64_t word = sizeof(uint64_t);
    uint64_t hash = (uint64_t)bytes * MIX, last = 0;
    int64_t at = 0;
    for (; bytes - at >= word; at += word)
        hash = mixed(hash, word_at(text + at));
    if (at < bytes) {
        /* The last word may overlap the one before it. */
        if (bytes >= word)
            last = word_at(text + bytes - word);
        else
            memcpy(&last, text, (size_t)bytes);
        hash = mixed(hash, last);
    }
    return (uint32_t)(hash * MIX >> 32);
}

static int is_text(const struct text_table *table, int64_t number, const uint8_t *text,
                   int64_t bytes)
{
    int64_t start = table->starts[number];
    return table->starts[number + 1] - 1 - start == bytes &&
           memcmp(table->content + start, text, (size_t)bytes) == 0;
}

/* The slot of a text, free if it has no number yet; -1 after too many probes. */
static int64_t slot_of(const struct text_table *table, const uint8_t *text, int64_t bytes,
                       uint32_t hash)
{
    uint64_t mask = (uint64_t)table->slot_count - 1, slot = hash;
    for (int probe = 0; probe < MOST_PROBES; probe++, slot++) {
        uint64_t there = table->slots[slot & mask];
        if (there == FREE ||
            (there >> 32 == hash && is_text(table, (int64_t)(uint32_t)there, text, bytes)))
            return (int64_t)(slot & mask);
    }
    return -1;
}

/* A free slot for a text that is not in the table yet; -1 after too many probes. */
static int64_t free_slot(const struct text_table *table, uint32_t hash)
{
    uint64_t mask = (uint64_t)table->slot_count - 1, slot = hash;
    for (int probe = 0; probe < MOST_PROBES; probe++, slot++)
        if (table->slots[slot & mask] == FREE)
            return (int64_t)(slot & mask);
    return -1;
}

/* Enter all texts into new slots. Returns NULL, or the reason of a failure. */
EXPORTED const char *traceview_index_texts(struct text_table *table)
{
    uint32_t hashes[AHEAD];
    uint64_t mask = (uint64_t)table->slot_count - 1;
    memset(table->slots, 0xFF, (size_t)table->slot_count * sizeof *table->slots);
    for (int64_t first = 0; first < table->texts; first += AHEAD) {
        int64_t end = table->texts - first < AHEAD ? table->texts : first + AHEAD;
        for (int64_t number = first; number < end; number++) {
            int64_t start = table->starts[number], bytes = table->starts[number + 1] - 1 - start;
            hashes[number - first] = hash_of(table->content + start, bytes);
            PREFETCH(&table->slots[hashes[number - first] & mask]);
        }
        for (int64_t number = first; number < end; number++) {
            uint32_t hash = hashes[number - first];
            int64_t slot = free_slot(table, hash);
            if (slot < 0)
                return COLLISIONS;
            table->slots[slot] = (uint64_t)hash << 32 | (uint64_t)number;
        }
    }
    return NULL;
}

/* The number of a text, which is added if new. */
static const char *number_text(struct text_table *table, const uint8_t *text, int64_t bytes,
                               uint32_t hash, int32_t *result)
{
    int64_t slot = slot_of(table, text, bytes, hash), number = table->texts;
    if (slot < 0)
        return COLLISIONS;
    if (table->slots[slot] == FREE) {
        int64_t start = table->starts[number];
        if (number >= table->most_texts || bytes >= table->most_bytes - start)
            return NO_ROOM;
        memcpy(table->content + start, text, (size_t)bytes);
        table->content[start + bytes] = 0;
        table->starts[number + 1] = start + bytes + 1;
        table->slots[slot] = (uint64_t)hash << 32 | (uint64_t)number;
        table->texts++;
    }
    *result = (int32_t)(uint32_t)table->slots[slot];
    return NULL;
}

const char *traceview_number_text(struct text_table *table, const uint8_t *text, int64_t bytes,
                                  int32_t *number)
{
    return number_text(table, text, bytes, hash_of(text, bytes), number);
}

/* The number of each of `count` texts, given by their starts and sizes in `content`. */
EXPORTED const char *traceview_number_texts(struct text_table *table, const uint8_t *content,
                                            const int64_t *starts, const int64_t *sizes,
                                            int64_t count, int32_t *numbers)
{
    uint32_t hashes[AHEAD];
    uint64_t mask = (uint64_t)table->slot_count - 1;
    for (int64_t first = 0; first < count; first += AHEAD) {
        int64_t some = count - first < AHEAD ? count - first : AHEAD;
        /* Most of the time is spent on cache misses of slots: prefetch several. */
        for (int64_t i = 0; i < some; i++) {
            hashes[i] = hash_of(content + starts[first + i], sizes[first + i]);
            PREFETCH(&table->slots[hashes[i] & mask]);
        }
        for (int64_t i = 0; i < some; i++) {
            const char *reason = number_text(table, content + starts[first + i], sizes[first + i],
                                             hashes[i], &numbers[first + i]);
            if (reason)
                return reason;
        }
    }
    return NULL;
}

static int is_digit(uint8_t byte)
{
    return (uint8_t)(byte - '0') < 10;
}

static int is_letter(uint8_t byte)
{
    return (uint8_t)((byte | 0x20) - 'a') < 26;
}

/* Overwrite the digits of numbers with zeros, in place; digits between two letters stay. */
EXPORTED void traceview_zero_numbers(uint8_t *text, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at++) {
        if (!is_digit(text[at]))
            continue;
        int64_t end = at + 1;
        while (end < bytes && is_digit(text[end]))
            end++;
        if (at == 0 || end == bytes || !is_letter(text[at - 1]) || !is_letter(text[end]))
            memset(text + at, '0', (size_t)(end - at));
        at = end;
    }
}

/* Copy text with a # for each number; digits between two letters stay. Its size is `size`. */
EXPORTED void traceview_mark_numbers(const uint8_t *text, int64_t bytes, uint8_t *result,
                                     int64_t *size)
{
    int64_t written = 0;
    for (int64_t at = 0; at < bytes;) {
        int64_t end = at;
        while (end < bytes && is_digit(text[end]))
            end++;
        if (end == at) {
            result[written++] = text[at++];
        } else if (at && end < bytes && is_letter(text[at - 1]) && is_letter(text[end])) {
            memcpy(result + written, text + at, (size_t)(end - at));
            written += end - at;
            at = end;
        } else {
            result[written++] = '#';
            at = end;
        }
    }
    *size = written;
}

/* The decimal number in each text, of digits[form[i]] digits from begin[form[i]] on.
 *
 * Texts without one, of 0 digits, leave their result as it is. 18 digits always fit.
 */
EXPORTED void traceview_read_numbers(const uint8_t *content, const int64_t *starts,
                                     const int64_t *form, int64_t texts, const int64_t *begin,
                                     const int64_t *digits, int64_t *result)
{
    for (int64_t text = 0; text < texts; text++) {
        int64_t of = form[text], count = digits[of], number = 0;
        const uint8_t *digit = content + starts[text] + begin[of];
        for (int64_t each = 0; each < count; each++)
            number = number * 10 + (digit[each] - '0');
        if (count)
            result[text] = number;
    }
}

/* Whether some bytes occur in others. */
EXPORTED int traceview_holds(const uint8_t *content, int64_t bytes, const uint8_t *part,
                             int64_t part_bytes)
{
#ifdef _WIN32
    for (int64_t at = 0; at + part_bytes <= bytes; at++)
        if (memcmp(content + at, part, (size_t)part_bytes) == 0)
            return 1;
    return 0;
#else
    return memmem(content, (size_t)bytes, part, (size_t)part_bytes) != NULL;
#endif
}

/* Copy the texts of some numbers, each followed by a NUL, to `result`. */
EXPORTED void traceview_pick_texts(const uint8_t *content, const int64_t *starts,
                                   const int64_t *sizes, const int64_t *numbers, int64_t count,
                                   uint8_t *result)
{
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = (size_t)sizes[numbers[i]];
        memcpy(result, content + starts[numbers[i]], bytes);
        result[bytes] = 0;
        result += bytes + 1;
    }
}
