"""FastAPI + redis-py: one key for each entity, a JSON value, a response model."""

import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from redis.asyncio import Redis

app = FastAPI()
client = Redis.from_url(os.environ["BENCH_REDIS_URL"])


class Score(BaseModel):
    entity_id: str
    churn: float
    prediction: bool
    model_version: str
    scored_at: str


@app.get("/score/{entity_id}")
async def get_score(entity_id: str) -> Score:
    value = await client.get(f"score:{entity_id}")
    if value is None:
        raise HTTPException(404, "no such entity")
    return Score.model_validate_json(value)
