/* Binary searches among ascending numbers, for the other sources of the library. */
#ifndef TRACEVIEW_SEARCH_H
#define TRACEVIEW_SEARCH_H

#include <stdint.h>

/* Whether `number` is less than `value`, or with `right` at most `value`. */
static inline int is_before(int64_t number, int64_t value, int64_t right)
{
    return number < value || (right && number == value);
}

/* How many of the ascending numbers from `first` to `last` are before `value`, plus `first`.
 *
 * The search begins at `near`, between `first` and `last`: the result for the previous value, where
 * values mostly come in order.
 */
static inline int64_t place_near(const int64_t *ordered, int64_t first, int64_t last, int64_t near,
                                 int64_t value, int64_t right)
{
    int64_t step = 1, low = near, high = near;
    if (near < last && is_before(ordered[near], value, right)) {
        do {
            low = high + 1;
            high = last - high > step ? high + step : last;
            step *= 2;
        } while (high < last && is_before(ordered[high], value, right));
    } else {
        while (low > first && !is_before(ordered[low - 1], value, right)) {
            high = low - 1;
            low = low - first > step ? low - step : first;
            step *= 2;
        }
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (is_before(ordered[middle], value, right))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
