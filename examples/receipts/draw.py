"""Draws the receipts of this example; needs Pillow. The photos are there already."""

from __future__ import annotations

import csv
import random
from pathlib import Path

from PIL import Image, ImageDraw, PngImagePlugin

FOLDER = Path(__file__).parent
ITEMS = {
    "travel": "train ticket,bus pass,airport shuttle,ferry crossing,motorway toll,petrol",
    "meals": "lunch menu,espresso,sandwich,soup,croissant,pizza",
    "office": "printer paper,ballpoint pens,stapler,envelopes,toner,usb cable",
    "lodging": "double room,breakfast buffet,minibar,laundry,late checkout,pillow",
}
RECEIPTS = 96


def draw(lines: list[str]) -> Image.Image:
    """Return a receipt with these lines as a picture in black and white."""
    picture = Image.new("1", (200, 24 + 16 * len(lines)), 1)
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        pen.text((12, 12 + 16 * number), line, fill=0)
    return picture


def main() -> None:
    """Draw all receipts, and write the table of them."""
    chance = random.Random(7)
    (FOLDER / "photos").mkdir(exist_ok=True)
    with (FOLDER / "receipts.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "photo", "category"])
        for number in range(RECEIPTS):
            category = [*ITEMS][number % len(ITEMS)]
            items = chance.sample(ITEMS[category].split(","), 2)
            total = chance.randint(300, 9_000) / 100
            lines = [f"Receipt {chance.randint(1000, 9999)}", *items, f"Total {total:.2f}"]
            # The embedded model cannot see: it reads the caption that is stored in the file.
            notes = PngImagePlugin.PngInfo()
            notes.add_itxt("Description", ", ".join(lines))
            photo = f"photos/{number:02}.png"
            draw(lines).save(FOLDER / photo, optimize=True, pnginfo=notes)
            table.writerow([f"r-{number:02}", photo, category])


if __name__ == "__main__":
    main()
