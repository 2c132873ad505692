"""FastAPI + torch: the features in the request, a pydantic model, preprocessing by hand, the module in eager mode.

The handler is ``async def`` and scores in place: for a model this small, with one worker, that is faster than FastAPI's
threads.
"""

import os
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.references.rows import Customer
from benchmarks.references.telco import Telco

app = FastAPI()
model = Telco(Path(os.environ["BENCH_BUNDLE"]))


class Answer(BaseModel):
    churn: float
    prediction: bool


@app.post("/score")
async def score(customer: Customer) -> Answer:
    churn = model.score(vars(customer))
    return Answer(churn=churn, prediction=churn >= 0.5)  # noqa: PLR2004 - the threshold of the model
