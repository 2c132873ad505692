"""``/docs`` and ``/redoc``, from files that lie beside the program: a service behind a firewall has them too."""

from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

FILES = "/docs/files"
_PACKAGE = "fastapi_offline"
"""The package that carries Swagger UI and Redoc."""


def install(app: FastAPI) -> None:
    """Adds both pages, in place of FastAPI's own, which load from another host."""

    async def swagger(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{FILES}/swagger-ui.css",
            swagger_favicon_url=f"{root}{FILES}/favicon.png",
        )

    async def redoc(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return get_redoc_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            redoc_js_url=f"{root}{FILES}/redoc.standalone.js",
            redoc_favicon_url=f"{root}{FILES}/favicon.png",
            with_google_fonts=False,
        )

    app.mount(FILES, StaticFiles(directory=str(files(_PACKAGE) / "static")))
    app.add_route("/docs", swagger, include_in_schema=False)
    app.add_route("/redoc", redoc, include_in_schema=False)
