"""Titles by a model: what is about the conversation is taken, what only looks like a title is not."""

from __future__ import annotations

import pytest

from app.chats.title_check import checked_title

BUS = "Why is the bus late today, and what is to be done about it?\nBecause of the rain: the streets are full, and queues grow."


@pytest.mark.parametrize(
    ("text", "said", "title"),
    [
        ("Late bus", BUS, "Late bus"),
        ("<think>hm</think>**Late bus**.", BUS, "Late bus"),
        ('Title: "Why Buses Are Late"', BUS, "Why Buses Are Late"),
        ("Rain and queueing", BUS, "Rain and queueing"),
        ("C++", "What is C++?", "C++"),
        (
            "北京旅行",
            "我想去北京旅行，有什么建议？",
            "北京旅行",
        ),
        ("Titel: Verspäteter Bus", "Warum hat der Bus Verspätung?", "Verspäteter Bus"),
        ("Words of Welcome", "Find words of welcome for my guests", "Words of Welcome"),
        # no title: echoes, answers, inventions, another script, too long
        ("In Two and a Half Words: A Journey", "Say hello.\nHello!", ""),
        ("Name this conversation", BUS, ""),
        ("Conversation about the bus", BUS, ""),
        ("Bus in two to five words", BUS, ""),
        ("The title only: late bus", BUS, ""),
        ("Sure! Late bus", BUS, ""),
        ("Here’s the late bus", BUS, ""),
        ("A Journey Through Imagination", BUS, ""),
        ("Автобус late bus", BUS, ""),
        ("Sure! Here is a title for the conversation that you asked me to name", BUS, ""),
        ("Late bus\nRain", BUS, ""),
        ("bus " * 9, BUS, ""),
        ("x" * 200, BUS, ""),
        ("  ", BUS, ""),
        ("— …", BUS, ""),
        ("Late bus", "", ""),
    ],
)
def test_a_title_is_about_what_was_said(text, said, title):
    assert checked_title(text, said) == title
