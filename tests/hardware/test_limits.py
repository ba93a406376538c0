"""The table of limits agrees with itself, and what is not in it is an error."""

import pytest

from traceview.base.errors import InputError
from traceview.base.hardware import KNOWN_CAPABILITIES, limits_of

every_capability = pytest.mark.parametrize("capability", KNOWN_CAPABILITIES)


def test_the_h200():
    limits = limits_of("9.0")
    assert (limits.threads_per_sm, limits.warps_per_sm, limits.blocks_per_sm) == (2048, 64, 32)
    assert limits.shared_bytes_per_sm == 228 * 1024
    assert limits.opt_in_shared_bytes_per_block == 227 * 1024
    assert limits.barriers_per_sm == 64


@pytest.mark.parametrize("name", ["sm_90", "sm_90a", "compute_90a"])
def test_an_architecture_names_its_capability(name):
    assert limits_of(name) is limits_of("9.0")


@pytest.mark.parametrize("name", ["sm_100", "sm_100a", "sm_100f"])
def test_the_last_digit_is_the_minor_number(name):
    assert limits_of(name) is limits_of("10.0")


@every_capability
def test_a_block_has_what_the_driver_leaves_of_the_sm(capability):
    limits = limits_of(capability)
    left = limits.shared_bytes_per_sm - limits.reserved_shared_bytes_per_block
    assert limits.opt_in_shared_bytes_per_block == left
    assert limits.shared_bytes_per_block <= left


@every_capability
def test_whole_warps_and_at_least_one_largest_block_fit(capability):
    limits = limits_of(capability)
    assert limits.warps_per_sm * 32 == limits.threads_per_sm
    assert limits.threads_per_sm >= limits.threads_per_block


@pytest.mark.parametrize("name", ["9.1", "sm_35", "sm_90b", "hopper", "", "9", "sm_9"])
def test_the_unknown_is_not_guessed(name):
    with pytest.raises(InputError, match=r"not known; known are 7\.0, 7\.2, 7\.5, 8\.0, .*12\.1"):
        limits_of(name)
