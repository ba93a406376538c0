/* Statistics of groups of integers: group_statistics.py, compiled.
 *
 * Values are put beside those of their group, where the median is selected: a sort of all of them
 * takes several times as long. Knows nothing of Python, and may run in several threads.
 */
#include <stdint.h>

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
