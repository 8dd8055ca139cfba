"""Signing in and out, where `/` leads, and how the page looks for one person."""

from __future__ import annotations

from django.contrib.auth import login, logout
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme

from durableops.access import Permission
from durableops.console import throttle
from durableops.console.http import YEAR_SECONDS, ConsoleRequest, page


@page("GET", permission=Permission.SIGNED_IN)
def home(request: ConsoleRequest) -> HttpResponse:
    """Where a person begins."""
    return redirect("console:overview")


@page("GET", "POST", permission=Permission.ANYBODY)
def sign_in(request: ConsoleRequest) -> HttpResponse:
    """The sign-in page; too many wrong passwords for one name make it wait."""
    given = request.POST.get("next") or request.GET.get("next") or "/"
    after = given if url_has_allowed_host_and_scheme(given, allowed_hosts={request.get_host()}) else "/"
    form = AuthenticationForm(request, data=request.POST or None)
    wait = throttle.seconds_to_wait(request.POST.get("username", "")) if request.method == "POST" else 0
    if request.method == "POST" and not wait:
        if form.is_valid():
            throttle.forget(request.POST.get("username", ""))
            login(request, form.get_user())
            return redirect(after)
        throttle.note_failure(request.POST.get("username", ""))
    context = {"form": form, "next": after, "lost": "lost" in request.GET, "wait": wait,
               "theme": request.COOKIES.get("theme", "")}  # fmt: skip
    return render(request, "console/sign_in.html", context, status=429 if wait else 200)


@page("POST", permission=Permission.SIGNED_IN)
def sign_out(request: ConsoleRequest) -> HttpResponse:
    """End the session and have the browser forget what it kept of it."""
    logout(request)
    response = redirect("console:sign_in")
    response["Clear-Site-Data"] = '"cache", "storage"'
    return response


@page("POST", permission=Permission.SIGNED_IN)
def look(request: ConsoleRequest) -> HttpResponse:
    """Light or dark, local time or UTC, a demo's explanation or none; kept in cookies and nowhere else."""
    given = request.POST.get("back", "/")
    response = redirect(given if url_has_allowed_host_and_scheme(given, allowed_hosts=None) else "/")
    if (theme := request.POST.get("theme", "")) in ("light", "dark"):
        response.set_cookie("theme", theme, max_age=YEAR_SECONDS, samesite="Lax")
    if (about := request.POST.get("about", "")) in ("show", "hide"):
        response.set_cookie("about", about, max_age=YEAR_SECONDS, samesite="Lax")
    if "zone" in request.POST:
        response.set_cookie("zone", request.POST["zone"][:64] or "UTC", max_age=YEAR_SECONDS, samesite="Lax")
    return response
