"""The words of the synthetic log. All lists are disjoint, and every word is in one of them only.

Queries are "topic", "topic modifier" or "topic modifier place". Topics come in themes of eight, so that related
queries can share sites. Nothing here is a person or a company; the private tail has its own lists, in
:mod:`hushquery.log.synthetic.private`.
"""

from __future__ import annotations

__all__ = ["FEARS", "MODIFIERS", "PLACES", "SERVICES", "THEMES", "misspell"]

#: What people fear in the synthetic log, the most common first, for "fear of X" and "X phobia".
FEARS: tuple[str, ...] = (
    "heights", "spiders", "flying", "snakes", "darkness", "needles", "clowns", "dentists", "crowds", "thunder",
    "public speaking", "blood", "germs", "commitment", "failure", "drowning", "elevators", "birds", "mirrors", "dogs",
    "cats", "bees", "mice", "ghosts", "strangers", "tunnels", "bridges", "fire", "doctors", "exams",
    "numbers", "holes", "dolls", "balloons", "moths", "frogs", "sharks", "lightning", "silence", "buttons",
)  # fmt: skip

#: Eight topics for each theme.
THEMES: dict[str, tuple[str, ...]] = {
    theme: tuple(topics.split())
    for theme, topics in (
        line.split(": ")
        for line in """
cooking: chicken pasta salad soup bread pizza curry pancakes
desserts: cake cookies chocolate cheesecake brownies pudding waffles donuts
fruit: apples bananas strawberries oranges grapes mango cherries blueberries
drinks: coffee cocktail smoothie lemonade whiskey champagne espresso cider
weather: forecast hurricane tornado snowfall rainfall temperature humidity drought
travel: flights hotels cruise airport luggage passport hostel campground
cars: sedan tires brakes battery engine transmission muffler windshield
motoring: motorcycle scooter trucks trailer camper convertible minivan hybrid
homes: apartment mortgage rental condo cottage realtor townhouse mansion
garden: roses tulips lawnmower compost fertilizer tomatoes orchids hedges
tools: hammer drill chainsaw ladder wrench sander toolbox welder
furniture: sofa mattress bookcase dresser recliner futon nightstand ottoman
kitchen: refrigerator dishwasher blender toaster cookware microwave freezer kettle
bathroom: shower bathtub faucet toilet plumbing tiles vanity towels
pets: puppies kittens hamster parrot aquarium ferret rabbits terrier
wildlife: elephants dolphins tigers penguins whales eagles wolves giraffes
insects: butterflies termites mosquitoes ladybugs crickets beetles wasps dragonflies
health: headache allergies diabetes arthritis asthma insomnia migraine pneumonia
fitness: yoga pilates treadmill dumbbells marathon stretching aerobics triathlon
diet: calories vitamins protein vegetarian cholesterol fasting nutrition fiber
medicine: antibiotics vaccine aspirin surgery dermatology cardiology therapy anesthesia
beauty: makeup haircut perfume manicure shampoo lipstick eyeliner sunscreen
clothing: jeans sweater jacket dresses sandals boots raincoat swimsuit
jewelry: earrings necklace bracelet diamonds pearls emerald sapphire watches
weddings: bridal bouquet reception invitations honeymoon engagement tuxedo florist
babies: stroller crib diapers lullaby pacifier daycare toddler maternity
schooling: algebra geometry chemistry biology physics grammar spelling fractions
college: scholarship tuition dormitory diploma semester transcript fraternity internship
languages: spanish french german italian japanese portuguese russian swahili
literature: novels poetry shakespeare biography essays folklore mythology sonnets
music: guitar piano violin lyrics karaoke orchestra saxophone drums
dancing: ballet salsa tango waltz hiphop ballroom flamenco choreography
movies: comedy thriller horror western animation documentary musical trailers
television: sitcom cartoon miniseries reruns broadcast satellite antenna channel
games: chess poker solitaire crossword sudoku checkers backgammon dominoes
consoles: joystick cheats emulator multiplayer arcade gamepad speedrun walkthrough
computers: laptop keyboard printer monitor scanner modem router desktop
programs: spreadsheet browser antivirus firewall screensaver codec compiler database
phones: ringtones voicemail headset cellphone charger texting wireless broadband
photos: camera tripod wallpaper portrait darkroom slideshow clipart panorama
football: quarterback touchdown linebacker playoffs stadium tailgate helmet scrimmage
baseball: pitcher shortstop homerun bullpen outfield umpire innings dugout
winter: skiing snowboard hockey sledding skating bobsled curling snowshoes
water: surfing kayak sailing fishing scuba snorkel canoe rafting
outdoors: hiking camping hunting archery climbing binoculars tent backpack
racing: speedway pitstop dragster gokart motocross rally karting jockey
money: savings loans budgeting refinance pension bankruptcy mutual dividends
taxes: deductions refund audits withholding exemption accountant payroll receipts
insurance: annuity deductible liability premium claims underwriter coverage copay
jobs: resume interview salary recruiter freelance unemployment apprentice careers
shopping: coupons clearance outlet catalog auction voucher discounts wholesale
gifts: baskets flowers hampers candles ornaments greeting keepsake souvenirs
holidays: halloween christmas easter thanksgiving valentine carnival fireworks costumes
crafts: knitting crochet quilting origami scrapbook embroidery pottery beading
art: painting sculpture watercolor mosaic calligraphy museum gallery sketching
history: pyramids gladiator medieval renaissance pharaoh colonial vikings crusades
war: battleship submarine infantry bomber cavalry trenches armistice regiment
space: planets galaxy eclipse telescope asteroid astronaut comet nebula
nature: volcano earthquake glacier rainforest waterfall canyon desert coral
maps: directions mileage atlas compass highway ferry subway cartography
news: headlines election senate governor obituaries parliament referendum newspaper
law: attorney divorce custody lawsuit copyright patent probate bail
faith: bible prayer hymns pilgrimage cathedral scripture meditation monastery
stars: horoscope astrology tarot zodiac numerology dreams palmistry runes
""".strip().splitlines()
    )
}

#: The second word of a query: what a person wants of the topic.
MODIFIERS: tuple[str, ...] = tuple(
    """
pictures prices reviews online free cheap best used
recipes ideas tips guide lessons video names facts
definition meaning symptoms causes treatment cure types parts
repair fees sale store supplies accessories brands sizes
colors designs patterns plans kits templates samples worksheets
beginners experts kids teenagers adults seniors women men
homemade vintage antique modern luxury portable electric digital
wooden plastic leather cotton organic natural artificial mini
printable download software forum blog magazine books songs
schedule tickets results scores records rankings statistics trends
jokes quotes stories poems trivia quiz puzzles pranks
dangers safety rules laws license permit certification training
classes schools teachers vacancies wages companies dealers manufacturers
comparison alternatives advantages problems complaints recall warranty instructions
storage cleaning maintenance replacement installation removal delivery shipping
calendar archives timeline origin inventor museums festivals clubs
""".split()  # noqa: SIM905 - lists of words are read as text
)

#: The third word: where.
PLACES: tuple[str, ...] = tuple(
    """
leeds york bristol oxford bath derby exeter norwich
dublin cork galway limerick glasgow edinburgh cardiff swansea
lyon nice lille nantes bordeaux toulouse marseille grenoble
berlin munich hamburg cologne dresden leipzig bremen hanover
madrid seville valencia granada bilbao malaga zaragoza toledo
rome milan naples turin venice bologna genoa verona
lisbon porto braga coimbra athens patras vienna graz
zurich geneva basel bern oslo bergen stockholm malmo
helsinki turku copenhagen aarhus warsaw krakow gdansk prague
brno budapest bucharest sofia zagreb belgrade tallinn riga
toronto montreal ottawa calgary winnipeg halifax seattle portland
denver dallas houston austin memphis nashville atlanta orlando
miami tampa boston chicago detroit cleveland pittsburgh buffalo
phoenix tucson omaha tulsa boise fresno sacramento oakland
sydney melbourne perth adelaide brisbane auckland wellington hobart
tokyo osaka kyoto seoul busan taipei manila nairobi
""".split()  # noqa: SIM905 - lists of words are read as text
)

#: Sites that have a page for every topic.
SERVICES: tuple[str, ...] = ("encyclopedia", "clips", "marketplace", "answers", "herald", "phobias", "directory")


def misspell(word: str, taken: set[str]) -> list[str]:
    """Give three slips of the finger on a word, none of them in ``taken``, and add them to it.

    >>> misspell("guitar", {"guitar"})
    ['giutar', 'gitar', 'guuitar']
    """
    inside = range(1, len(word) - 1)
    kinds = (
        [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in inside],  # two letters exchanged
        [word[:at] + word[at + 1 :] for at in inside],  # a letter left out
        [word[: at + 1] + word[at:] for at in inside],  # a letter typed twice
    )
    slips = [next(slip for slip in kind if slip not in taken) for kind in kinds]
    taken.update(slips)
    return slips
