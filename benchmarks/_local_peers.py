"""Measure one peer with its own interpreter: ``python _local_peers.py PACKAGE``; prints JSON.

The program imports nothing of Sfumato, because it runs outside its environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

EPSILON = 1.0


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


def line(method: str, size: int, people: int, encode: float, aggregate: float) -> dict[str, Any]:
    return {"method": method, "size": size, "encode": people / encode, "aggregate": people / aggregate}


def pure_ldp() -> list[dict[str, Any]]:
    from pure_ldp.frequency_oracles import DEClient, DEServer, UEClient, UEServer

    lines = []
    for method, client, server in (
        ("GRR", DEClient(EPSILON, 16), DEServer(EPSILON, 16)),
        ("OUE", UEClient(EPSILON, 16, use_oue=True), UEServer(EPSILON, 16, use_oue=True)),
    ):
        values = (np.arange(20_000) % 16 + 1).tolist()
        encode, reports = seconds(lambda client=client, values=values: [client.privatise(value) for value in values])
        aggregate, _ = seconds(lambda server=server, reports=reports: [server.aggregate(each) for each in reports])
        lines.append(line(method, 16, len(values), encode, aggregate))
    return lines


def multi_freq_ldpy() -> list[dict[str, Any]]:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    lines = []
    for method, size, people, client, aggregator in (
        ("GRR", 16, 200_000, GRR_Client, lambda reports: GRR_Aggregator_MI(reports, 16, EPSILON)),
        ("OUE", 16, 100_000, UE_Client, lambda reports: UE_Aggregator_MI(reports, EPSILON)),
        ("OLH", 1024, 500, LH_Client, lambda reports: LH_Aggregator_MI(reports, 1024, EPSILON)),
    ):
        values = (np.arange(people) % size).tolist()
        client(0, size, EPSILON)  # compiles
        encode, reports = seconds(
            lambda client=client, values=values, size=size: [client(value, size, EPSILON) for value in values]
        )
        aggregate, _ = seconds(lambda aggregator=aggregator, reports=reports: aggregator(np.array(reports)))
        lines.append(line(method, size, people, encode, aggregate))
    return lines


PEERS = {"pure-ldp": pure_ldp, "multi-freq-ldpy": multi_freq_ldpy}

if __name__ == "__main__":
    json.dump(PEERS[sys.argv[1]](), sys.stdout)
