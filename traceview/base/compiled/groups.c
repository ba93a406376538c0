/* C code of groups.py: rows grouped by small integers, statistics of groups, and keys matched.
 *
 * The values of a group are gathered, and its median is selected among them: sorting all values
 * takes several times as long. Knows nothing of Python, and may run in several threads.
 */
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Arrays with one entry per group; `room` is a buffer of all values, `end` the group ends in it. */
struct statistics {
    int64_t *calls;
    int64_t *total;
    int64_t *least;
    int64_t *median;
    int64_t *most;
    int64_t *end;
    int64_t *room;
};

static int64_t middle_of(int64_t a, int64_t b, int64_t c)
{
    if ((a < b) == (b < c))
        return b;
    return (a < b) == (c < a) ? a : c;
}

/* Quickselect: reorder the values so that the one at `place` is the one there when sorted, and none
 * behind it is smaller. Pivots are pseudo-random, so that no input is slow by design. */
static int64_t selected(int64_t *values, int64_t count, int64_t place)
{
    uint64_t chance = 0x9E3779B97F4A7C15u;
    int64_t first = 0, last = count - 1;
    while (first < last) {
        uint64_t span = (uint64_t)(last - first + 1);
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        int64_t pivot = middle_of(values[first + chance % span],
                                  values[first + (chance >> 21) % span],
                                  values[first + (chance >> 42) % span]);
        int64_t low = first, high = last;
        while (low <= high) {
            while (values[low] < pivot)
                low++;
            while (values[high] > pivot)
                high--;
            if (low <= high) {
                int64_t value = values[low];
                values[low++] = values[high];
                values[high--] = value;
            }
        }
        if (place <= high)
            last = high;
        else if (place >= low)
            first = low;
        else
            break;
    }
    return values[place];
}

static void summarize(const struct statistics *of, int64_t group)
{
    int64_t count = of->calls[group];
    int64_t *values = of->room + of->end[group] - count;
    int64_t least = values[0], most = values[0];
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
        total += (uint64_t)values[i];
    }
    int64_t low = selected(values, count, (count - 1) / 2), high = low;
    if (count % 2 == 0) {
        high = most;
        for (int64_t i = count / 2; i < count; i++)
            high = values[i] < high ? values[i] : high;
    }
    of->total[group] = (int64_t)total;
    of->least[group] = least;
    of->most[group] = most;
    of->median[group] = low + (int64_t)(((uint64_t)high - (uint64_t)low) / 2);
}

/* `ids` has the group of each value, from 0 to `groups` - 1; every group has at least one value. */
EXPORTED void traceview_group_statistics(const int64_t *ids, const int64_t *values, int64_t rows,
                                         int64_t groups, const struct statistics *of)
{
    for (int64_t group = 0; group < groups; group++)
        of->calls[group] = 0;
    for (int64_t row = 0; row < rows; row++)
        of->calls[ids[row]]++;
    for (int64_t group = 0, begun = 0; group < groups; group++) {
        of->end[group] = begun;
        begun += of->calls[group];
    }
    for (int64_t row = 0; row < rows; row++)
        of->room[of->end[ids[row]]++] = values[row];
    for (int64_t group = 0; group < groups; group++)
        summarize(of, group);
}

/* Group rows with equal numbers, which are from 0 to `span` - 1; groups are in order of number.
 * `slots` has `span` entries; `first` receives the first row of each group, `groups` their number.
 * Used slots are handled without branches, which would be mispredicted. */
EXPORTED void traceview_group(const int32_t *numbers, int64_t rows, int64_t span, int32_t *slots,
                              int64_t *ids, int64_t *first, int64_t *groups)
{
    int64_t count = 0;
    memset(slots, 0xFF, sizeof *slots * (size_t)span);
    for (int64_t row = rows - 1; row >= 0; row--)
        slots[numbers[row]] = (int32_t)row;
    for (int64_t slot = 0; slot < span; slot++) {
        int32_t row = slots[slot];
        first[count] = row;
        slots[slot] = (int32_t)count;
        count += row >= 0;
    }
    for (int64_t row = 0; row < rows; row++)
        ids[row] = slots[numbers[row]];
    *groups = count;
}

/* Whether rows with equal numbers have equal digits; `slots` has `span` entries, one per number. */
EXPORTED void traceview_follows(const int32_t *numbers, const int32_t *digits, int64_t rows,
                                int64_t span, int32_t *slots, int64_t *follows)
{
    memset(slots, 0xFF, sizeof *slots * (size_t)span);
    for (int64_t row = 0; row < rows; row++) {
        int32_t digit = slots[numbers[row]];
        if (digit < 0)
            slots[numbers[row]] = digits[row];
        else if (digit != digits[row]) {
            *follows = 0;
            return;
        }
    }
    *follows = 1;
}

#define MARK_ALL(type)                                                          \
    for (int64_t row = 0; row < rows; row++)                                    \
        used[((const type *)values)[row] - least] = 1;                          \
    return

/* Mark the values in a column of integers of `bytes` bytes; used[i] is for `least` + i. */
EXPORTED void traceview_mark_values(const void *values, int64_t bytes, int64_t rows, int64_t least,
                                    uint8_t *used)
{
    switch (bytes) {
    case 1:
        MARK_ALL(int8_t);
    case 2:
        MARK_ALL(int16_t);
    case 4:
        MARK_ALL(int32_t);
    default:
        MARK_ALL(int64_t);
    }
}

#define ORDER_ALL(type)                                                         \
    for (int64_t row = 0; row < rows; row++)                                    \
        places[((const type *)values)[row] - least]++;                          \
    for (int64_t value = 0, place = 0; value < span; value++) {                 \
        int64_t count = places[value];                                          \
        places[value] = place;                                                  \
        place += count;                                                         \
    }                                                                           \
    for (int64_t row = 0; row < rows; row++)                                    \
        order[places[((const type *)values)[row] - least]++] = row;             \
    return

/* Stable counting sort: the rows in order of their values, integers of `bytes` bytes from `least`
 * to `least` + `span` - 1. `places` has `span` zeros. */
EXPORTED void traceview_order(const void *values, int64_t bytes, int64_t rows, int64_t least,
                              int64_t span, int64_t *places, int64_t *order)
{
    switch (bytes) {
    case 1:
        ORDER_ALL(int8_t);
    case 2:
        ORDER_ALL(int16_t);
    case 4:
        ORDER_ALL(int32_t);
    default:
        ORDER_ALL(int64_t);
    }
}

/* Mark the groups whose rows differ in their values. `last` is room for a value per group. */
EXPORTED void traceview_mark_varied(const int32_t *ids, const int32_t *values, int64_t rows,
                                    int32_t *last, uint8_t *varied)
{
    for (int64_t row = rows - 1; row >= 0; row--)
        last[ids[row]] = values[row];
    for (int64_t row = 0; row < rows; row++)
        varied[ids[row]] |= values[row] != last[ids[row]];
}

/* The number of distinct values, all below 64, in each group. `marks` has a zero per group. */
EXPORTED void traceview_different_in_groups(const int64_t *ids, const uint8_t *values, int64_t rows,
                                            int64_t groups, uint64_t *marks, int64_t *counts)
{
    for (int64_t row = 0; row < rows; row++)
        marks[ids[row]] |= (uint64_t)1 << values[row];
    for (int64_t group = 0; group < groups; group++) {
        counts[group] = 0;
        for (uint64_t left = marks[group]; left; left &= left - 1)
            counts[group]++;
    }
}

/* Add the value of each row to the sum of its number; rows with a negative number are left out.
 *
 * `bytes` is the size of a number: 4, else 8. */
EXPORTED void traceview_add_by_number(const void *numbers, int64_t bytes, const int64_t *values,
                                      int64_t rows, int64_t *sums)
{
    const int32_t *narrow = numbers;
    const int64_t *wide = numbers;
    if (bytes == 4) {
        for (int64_t row = 0; row < rows; row++)
            if (narrow[row] >= 0)
                sums[narrow[row]] += values[row];
    } else {
        for (int64_t row = 0; row < rows; row++)
            if (wide[row] >= 0)
                sums[wide[row]] += values[row];
    }
}

/* The first of `rows` keys that equals each wanted one, -1 for none.
 *
 * `slots` is room for 2^bits numbers, at least twice `rows`. Returns 0 for keys that are made to
 * collide, which this does not match. */
EXPORTED int traceview_match_keys(const int64_t *keys, int64_t rows, const int64_t *wanted,
                                  int64_t count, int32_t *slots, int64_t bits, int32_t *result)
{
    const uint64_t mix = 0x9E3779B97F4A7C15u, mask = ((uint64_t)1 << bits) - 1;
    const int64_t most_probes = 256;
    memset(slots, 0xFF, sizeof *slots << bits);
    for (int64_t row = 0; row < rows; row++) {
        uint64_t slot = (uint64_t)keys[row] * mix >> (64 - bits);
        int64_t probes = 0;
        while (slots[slot] >= 0 && keys[slots[slot]] != keys[row]) {
            if (++probes == most_probes)
                return 0;
            slot = (slot + 1) & mask;
        }
        if (slots[slot] < 0)
            slots[slot] = (int32_t)row;
    }
    for (int64_t row = 0; row < count; row++) {
        uint64_t slot = (uint64_t)wanted[row] * mix >> (64 - bits);
        int64_t probes = 0;
        while (slots[slot] >= 0 && keys[slots[slot]] != wanted[row] && probes++ < most_probes)
            slot = (slot + 1) & mask;
        /* No key is farther from its slot than the most probes. */
        result[row] = probes > most_probes ? -1 : slots[slot];
    }
    return 1;
}
