"""Pages of the explorer and answers of the server over files that may be damaged.

`explore DIR` asks for every run and model that is listed, `serve DIR` for a completion and a chat. The
status is 0 if the requests were answered, whatever the answer; an answer of 500 or more, or a sound run
that is missing from the list, is an error that nobody foresaw. One 500 is foreseen, and a rejection:
weights whose numbers are sound by themselves, but give logits that are not finite.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

NOT_FINITE = "the model gave logits that are not finite"
SOUND = "sound"  # a run that nothing was done to, among those explored


def main(what: str, place: str) -> int:
    try:
        return {"explore": explored, "serve": served}[what](Path(place))
    except (ValueError, OSError) as problem:  # as the command line has it
        print(f"toeplix: {' '.join(str(problem).split())}", file=sys.stderr)
        return 2


def explored(place: Path) -> int:
    from toeplix.explorer.app import explorer

    app = explorer(place, results=place / "nowhere", figures=place / "nowhere")
    return asyncio.run(_pages(app, (place / SOUND).is_dir()))


async def _pages(app: Any, sound: bool) -> int:
    import httpx

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await _asked(client, "GET", "/api/list")
        listed = json.loads(found.text) if found.status_code == 200 else {}
        names = [each["name"] for each in listed.get("runs", [])]
        if sound and SOUND not in names:
            print(f"the sound run is not listed, only {names}", file=sys.stderr)
            return 70
        for name in names:
            for page in ("metrics", "settings"):
                await _asked(client, "GET", f"/api/{page}", params={"name": name})
        for name in listed.get("models", []):
            await _asked(client, "GET", "/api/filters", params={"name": name})
            wish = {"model": name, "prompt": "one", "new": 2}
            await _asked(client, "POST", "/api/generate", json=wish)
    return 0


def served(place: Path) -> int:
    from toeplix.serving.server import running
    from toeplix.serving.service import open_service

    asked = {"model": "tiny", "max_tokens": 2, "temperature": 0}
    said = [{"role": "user", "content": "one"}]
    with running(open_service(place, "tiny")) as server:
        answers = [
            _posted(f"{server.url}/v1/completions", asked | {"prompt": "one"}),
            _posted(f"{server.url}/v1/chat/completions", asked | {"messages": said}),
        ]
    for status, text in answers:
        if status >= 500:
            print(f"answered with {status}: {text[:200]}", file=sys.stderr)
            return 2 if NOT_FINITE in text else 70
    return 0


def _posted(url: str, body: dict[str, Any]) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


async def _asked(client: Any, method: str, path: str, **rest: Any) -> Any:
    answer = await client.request(method, path, **rest)
    if answer.status_code >= 500:
        raise RuntimeError(f"{method} {path} was answered with {answer.status_code}")
    return answer
