"""The bench: Forescore and what one would write in its place, side by side, in one run on one machine.

::

    __main__     python -m benchmarks [--quick] [--only GROUP,...] [--json FILE]
    bars         what must hold: one bar for each row of the table
    results      a finding, a row, a report; its JSON
    sizes        how much is done: full, quick, tiny
    bench        what all measurements share: the bundle, tables, stores, servers, opened when first asked for
    customers    Telco-like customers of any number, seeded
    servers      processes that listen: Valkey, forescore serve, the references
    children     processes that end: what they say, how much memory they took
    load         32 connections, by wrk where there is one, else by ``caller``
    caller       the project's own client, a process of its own
    rounds       interleaved rounds, medians, spread

    answers, one_row, batch, memory, bits, starting    the measurements, by what they measure
    work/        what runs in a process of its own to be measured there
    references/  the other side: small programs, written plainly
    charts, page SVG charts, docs/performance.md and the README's numbers, from the JSON
"""
