/* Rows grouped by small numbers, and statistics of groups: grouping.py, compiled.
 *
 * Values are put beside those of their group, where the median is selected: a sort of all of them
 * takes several times as long. Knows nothing of Python, and may run in several threads.
 */
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* One array entry per group; the entries of `end` are those of `room`, which holds all values. */
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

/* Put the values in an order in which that of `place` is where it is when they are sorted, and
 * none behind it is smaller. Pivots come from places that no order of values foresees. */
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

/* `ids` has the group of each value, from 0 to `groups` - 1; each group has one at least. */
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

/* Number the groups of rows with equal numbers, from 0 to `span` - 1, in order of these. `slots`
 * are as many; `first` gets the first row of each group, `groups` how many there are. Nothing
 * depends on whether a slot is used but a number: which are cannot be foreseen. */
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

/* Whether rows with equal numbers, from 0 to `span` - 1, have equal digits. `slots` are as many. */
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

/* Mark the values that a column has, of so many bytes each; `used` begins with the least one. */
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

/* The rows in order of their values, each of so many bytes, and of equal ones in that of the rows.
 * The values are `span` from `least` on; `places` are as many zeros. */
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

/* How many different numbers below 64 each group has; `marks` are as many zeros. */
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
