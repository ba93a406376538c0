"""Figures of a GPU as the user gives them."""

import pytest

from traceview.base.errors import InputError
from traceview.base.hardware import parse_figures


def test_texts_and_numbers():
    texts = ["bandwidth=4.8e12", "bf16 = 989e12", "sms=132", "capability=9.0"]
    numbers = {"bandwidth": 4.8e12, "bf16": 989e12, "sms": 132, "capability": 9.0}
    assert parse_figures(texts) == parse_figures(numbers) == numbers


def test_a_text_alone_is_no_list_of_letters():
    assert parse_figures("bandwidth=4.8e12") == {"bandwidth": 4.8e12}


def test_the_last_of_a_name_counts():
    assert parse_figures(["sms=1", "sms=2"]) == {"sms": 2.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=1", "has no figure 'speed'; it has bandwidth, link"),
        ("=1", "has no figure ''"),
        ("bandwidth", "bandwidth is ''; give a positive number: bytes per second of device memory"),
        ("link=abc", "one way (--peak link=VALUE)"),
        ("sms=many", "sms is 'many'; give a positive number: SMs of the GPU"),
        ("bandwidth=fast", "bandwidth is 'fast'"),
        ("fp32=-1", "fp32 is '-1'"),
        ("fp32=nan", "fp32 is 'nan'"),
        ("fp32=inf", "fp32 is 'inf'"),
        ("sms=1.5", "sms is 1.5; give a whole number"),
        ("capability=3.5", "capability is 3.5; known are 7.0"),
    ],
)
def test_an_invalid_figure_is_an_input_error(text, said):
    with pytest.raises(InputError) as caught:
        parse_figures([text])
    assert said in str(caught.value)
