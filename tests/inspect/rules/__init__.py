from traceview.kernels.inspect.rules.engine import advice_by


def findings_by(rule, kernel):
    """What a rule finds, before its remedies are tried together with those of other rules."""
    return [advice.finding for advice in advice_by(rule, kernel)]
